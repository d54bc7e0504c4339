"""Sequences and optionals inside a graph: which values are some, and what each of them holds."""

from __future__ import annotations

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


Container = Listed | Maybe


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
