"""Sequences and optionals inside a graph: which values are some, and what each of them holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from cuvil_build.cuir.traverse import graphs_within, subgraphs_of
from cuvil_build.errors import NotYet

MAKERS = frozenset(
    "Optional SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceMap "
    "SplitToSequence".split()
)
"""Operators whose results are sequences or optionals."""
READERS = frozenset(
    "ConcatFromSequence OptionalGetElement OptionalHasElement SequenceAt SequenceLength".split()
)
OPERATORS = MAKERS | READERS


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence: tensors of which each is a value, then tensors that are the rows of one value."""

    first: tuple[ir.Value, ...] = ()
    rows: ir.Value | None = None


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional: a tensor, a sequence, or nothing."""

    element: ir.Value | Listed | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """A sequence of as many parts of a tensor as there are; the last one may be shorter."""

    whole: ir.Value
    axis: int
    size: ir.Value
    """Of a part, along the axis: an integer scalar."""


Container = Listed | Maybe | Parts


def has_containers(model: ir.Model) -> bool:
    return any(
        node.domain == "" and node.op_type in OPERATORS
        for graph in graphs_within(model.graph)
        for node in graph
    )


def find_containers(model: ir.Model) -> set[ir.Value]:
    """Every value that is a sequence or an optional."""
    search = _Search()
    search.found.update(v for v in model.graph.inputs if is_container_type(v.type))
    search.graph(model.graph)
    return search.found


def refuse_ends(model: ir.Model) -> None:
    """Inputs and outputs of a module are tensors; raises NotYet for the first one that is none."""
    found = find_containers(model)
    for what, values in (("input", model.graph.inputs), ("output", model.graph.outputs)):
        for value in values:
            if value in found or is_container_type(value.type):
                raise NotYet(
                    f"{what} '{value.name}' is a sequence or an optional; a module has tensors only",
                    hint="make it a tensor, or cut it off with 'outputs'",
                )


def is_container_type(type_: ir.TypeProtocol | None) -> bool:
    return isinstance(type_, (ir.SequenceType, ir.OptionalType))


def values_of(container: Container) -> list[ir.Value]:
    """The tensors of a container, in the order of `_paired`."""
    if isinstance(container, Listed):
        return [*container.first, *([] if container.rows is None else [container.rows])]
    if isinstance(container, Parts):
        return []
    element = container.element
    return [] if element is None else [element] if isinstance(element, ir.Value) else values_of(element)


def paired(
    held: Sequence[Container | None], name: str, who: str
) -> tuple[Container, list[tuple[ir.Value, ir.Value]]]:
    """What both of two containers hold, by the values of the first one, and which values go together."""
    one, other = held
    if isinstance(one, Maybe) and isinstance(other, Maybe):
        if isinstance(one.element, Listed) or isinstance(other.element, Listed):
            inner = [m.element if isinstance(m.element, Listed) else None for m in (one, other)]
            listed, pairs = paired(inner, name, who)
            assert isinstance(listed, Listed)
            return Maybe(listed), pairs
        if one.element is not None and other.element is not None:
            return one, [(one.element, other.element)]
        if one.element is None and other.element is None:
            return one, []
        raise NotYet(f"the optional '{name}', which {who} may fill")
    if not isinstance(one, Listed) or not isinstance(other, Listed):
        raise NotYet(f"'{name}', which {who} gives in another kind")
    if len(one.first) != len(other.first) or (one.rows is None) != (other.rows is None):
        raise NotYet(f"the sequence '{name}', whose length {who} may change when the module runs")
    pairs = list(zip(one.first, other.first))
    if one.rows is not None and other.rows is not None:
        pairs.append((one.rows, other.rows))
    return one, pairs


def refilled(container: Container, values: Iterator[ir.Value]) -> Container:
    """The container with other values, taken in the order in which `_paired` lists them."""
    if isinstance(container, Listed):
        first = tuple(next(values) for _ in container.first)
        return Listed(first, None if container.rows is None else next(values))
    if isinstance(container, Parts):
        return container
    if isinstance(container.element, Listed):
        inner = refilled(container.element, values)
        assert isinstance(inner, Listed)
        return Maybe(inner)
    return Maybe(None if container.element is None else next(values))


class _Search:
    def __init__(self) -> None:
        self.found: set[ir.Value] = set()
        self.nested: set[ir.Value] = set()
        """Optionals that hold a sequence."""

    def graph(self, graph: ir.Graph) -> None:
        for node in graph:
            self.node(node)

    def node(self, node: ir.Node) -> None:
        first = node.inputs[0] if node.inputs else None
        if node.domain != "":
            return
        if node.op_type == "If":
            self.branches(node)
        elif node.op_type == "Loop":
            self.loop(node)
        elif node.op_type in MAKERS:
            self.found.update(node.outputs)
            if node.op_type == "Optional" and first in self.found:
                self.nested.add(node.outputs[0])
        elif node.op_type == "OptionalGetElement" and first in self.nested:
            self.found.add(node.outputs[0])
        elif node.op_type == "Identity":
            self.same(node.outputs[0], first)
        if node.op_type not in ("If", "Loop", "SequenceMap"):
            for _, inner in subgraphs_of(node):
                self.graph(inner)

    def same(self, value: ir.Value, source: ir.Value | None) -> None:
        """One value is what the other one is."""
        for kind in (self.found, self.nested):
            if source in kind:
                kind.add(value)

    def branches(self, node: ir.Node) -> None:
        for _, inner in subgraphs_of(node):
            self.graph(inner)
            for value, result in zip(node.outputs, inner.outputs):
                self.same(value, result)

    def loop(self, node: ir.Node) -> None:
        body = node.attributes["body"].as_graph()
        for formal, state in zip(body.inputs[2:], node.inputs[2:]):
            self.same(formal, state)
        self.graph(body)
        for value, result in zip(node.outputs, body.outputs[1:]):
            self.same(value, result)
