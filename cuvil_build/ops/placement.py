"""Which values have no memory of their own: views that their readers look through, and parts of a Concat.

A view (Slice, Split, Transpose, …) between two kernels costs a copy of its own. Where its readers can follow
its index expressions instead, they read its operand. A value that a kernel makes for a Concat is written
where it will stand in the result, and whoever else reads it finds it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ONE, ZERO, Call, IntExpr, product
from cuvil_build.kernel.expr import INPUT, Buffer
from cuvil_build.ops import catalog
from cuvil_build.ops.in_memory import InMemory
from cuvil_build.ops.lowered_graph import GraphGuard
from cuvil_build.ops.lowering import access
from cuvil_build.ops.region_rows import known_by_name, node_row

Index = tuple[IntExpr, ...]

_READERS = frozenset("contraction copy map reduce view window".split())
"""Kinds of operators that follow index expressions; others bring their operands to memory first."""
_WRITERS = _READERS | {"gather"}
"""Kinds that can write a block; others write whole results by statements of their own."""
_ONCE = frozenset("copy map view".split())
"""Kinds that read an element of an operand once for each element of their result that needs it."""
_MOST_RESHAPES = 1
"""Of views on the way to a reader: a reshape of a reshape ends in divisions that no split of axes removes."""


@dataclass(frozen=True, slots=True)
class PartOf:
    """Where a value is written."""

    whole: ir.Value
    start: Index
    guards: tuple[GraphGuard, ...]
    """What must hold before it is written."""


@dataclass(frozen=True, slots=True)
class Placement:
    through: frozenset[ir.Value]
    """Views that are not computed: regions that read one read its operand."""
    parts: Mapping[ir.Value, PartOf]
    """Values that are written as a block of another one, which may itself be one."""

    def written(self, value: ir.Value) -> tuple[ir.Value, Index] | None:
        """The value whose memory holds this one, and where; None: it has memory of its own."""
        part = self.parts.get(value)
        if part is None:
            return None
        outer = self.written(part.whole)
        if outer is None:
            return part.whole, part.start
        return outer[0], tuple(a + b for a, b in zip(part.start, outer[1], strict=True))


def place_values(memory: InMemory, needed: set[ir.Node]) -> Placement:
    return _Placer(memory, needed).place()


@dataclass(frozen=True, slots=True)
class _View:
    """How a view re-indexes its operand."""

    is_window: bool
    """A block of the operand in the same order of dims."""
    is_contiguous: bool
    """Whether neighbours in memory are neighbours of the operand, or the same element."""
    is_broadcast: bool
    reshapes: int
    """Up to a reader, this one included."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """A region that reads a value, perhaps by other views."""

    kinds: frozenset[str]
    results: tuple[ir.Value, ...]


@dataclass
class _Placer:
    memory: InMemory
    needed: set[ir.Node]
    views: dict[ir.Value, _View] = field(default_factory=dict)
    """Those that readers could look through; an alias is one only where its operand has no memory."""

    def place(self) -> Placement:
        graphs = [self.memory.model.graph, *self.memory.model.graph.subgraphs()]
        nodes = [node for graph in graphs for node in graph if node in self.needed]
        for node in reversed(nodes):
            for value in node.outputs:
                view = self.view(node, value)
                if view is not None and self.is_worth_it(value, view):
                    self.views[value] = view
        aliases = [node for node in nodes if self.memory.is_alias(node)]
        through = set(self.views) - {node.outputs[0] for node in aliases}
        parts: dict[ir.Value, PartOf] = {}
        for node in nodes:
            if (node.domain, node.op_type) == ("", "Concat") and node.outputs[0] not in through:
                parts |= self.parts(node, through, parts)
        for node in aliases:
            if node.inputs[0] in through or node.inputs[0] in parts:
                through.add(node.outputs[0])
        return Placement(frozenset(through), parts)

    # Views ---------------------------------------------------------------------------------------

    def view(self, node: ir.Node, value: ir.Value) -> _View | None:
        source = node.inputs[0] if node.inputs else None
        if source is None or not self.is_free(value) or not self.is_plain(source):
            return None
        operator = catalog.find(node.domain, node.op_type)
        is_view = operator is not None and (operator.kind == "view" or node.op_type in ("Concat", "Gather"))
        if not is_view or node in self.memory.inference.measured:
            return None
        known = known_by_name([node], {}, self.memory.inference)
        index = access(node_row(node), known, value.index() or 0, self.memory.inference.bounds)
        if index is None or any(_has_extremes(entry) for entry in index):
            return None
        return self.described(value, source, index)

    def described(self, value: ir.Value, source: ir.Value, index: Index) -> _View:
        shape, order = self.memory.shape(value), self.memory.order(value)
        is_window = order == self.memory.order(source) and all(
            not _axes(entry - _axis(d, shape)) for d, entry in enumerate(index)
        )
        buffer = Buffer("", self.dtype(source), self.memory.shape(source), self.memory.order(source), INPUT)
        offset = sum((i * s for i, s in zip(index, buffer.strides(), strict=True)), ZERO)
        wide = [d for d in order if shape[d] != ONE]
        factor = offset.coefficient(f"%{wide[-1]}") if wide else ZERO
        used = {name for entry in index for name in _axes(entry)}
        is_broadcast = any(f"%{d}" not in used for d in wide)
        is_linear = all(entry.coefficient(name) is not None for entry in index for name in _axes(entry))
        reshapes = max((self.views[v].reshapes for v in self.view_readers(value)), default=0)
        return _View(is_window, factor in (ZERO, ONE), is_broadcast, reshapes + (not is_linear))

    def is_worth_it(self, value: ir.Value, view: _View) -> bool:
        """A block of an operand is as good as memory of its own, whoever reads it, and what is spread has
        fewer bytes than its copy. Other views are looked through by a single reader: a copy serves any number
        of them, and reading as the copy would read costs no more than the copy, once. Products and reductions
        read an operand again and again, so that its neighbours must be neighbours."""
        readers = list(self.readers(value))
        if not readers or any(not r.kinds or r.kinds - _READERS for r in readers):
            return False
        if view.reshapes > _MOST_RESHAPES:
            return False
        if view.is_window or (view.is_broadcast and view.is_contiguous):
            return True
        if len(readers) > 1:
            return False
        count = product(self.memory.shape(value))
        return view.is_contiguous or (
            readers[0].kinds <= _ONCE
            and any(count == product(self.memory.shape(r)) for r in readers[0].results)
        )

    def readers(self, value: ir.Value) -> Iterator[_Reader]:
        """Regions that would read the value's operand; of no kinds: what is none."""
        producer = value.producer()
        for node in dict.fromkeys(use.node for use in value.uses()):
            if node not in self.needed:
                continue
            passed = [v for v in node.outputs if v in self.views]
            if passed and node.inputs[0] is value:
                for v in passed:
                    yield from self.readers(v)
                if len(passed) == sum(self.memory.is_stored(v) for v in node.outputs):
                    continue
            same_graph = producer is not None and node.graph is producer.graph
            kinds = self.kinds_reading(node, value) if same_graph else frozenset()
            yield _Reader(kinds, tuple(v for v in node.outputs if v in self.memory.inference.known))

    def view_readers(self, value: ir.Value) -> Iterator[ir.Value]:
        for use in value.uses():
            if use.idx == 0:
                yield from (v for v in use.node.outputs if v in self.views)

    def kinds_reading(self, node: ir.Node, value: ir.Value) -> frozenset[str]:
        if node in self.memory.inference.measured or self.memory.is_alias(node):
            return frozenset()  # a region of its own reads it too; an alias needs it in memory
        function = self.memory.model.functions.get(node.op_identifier())
        if function is None:
            readers = [(node, n) for n, v in enumerate(node.inputs) if v is value]
        else:
            formals = [f for f, v in zip(function.inputs, node.inputs) if v is value]
            readers = [(use.node, use.idx) for f in formals for use in f.uses() if use.node in self.needed]
        return frozenset(self.kind_reading(n, index) for n, index in readers)

    def kind_reading(self, node: ir.Node, index: int) -> str:
        operator = catalog.find(node.domain, node.op_type)
        return "other" if operator is None or operator.index_operand == index else operator.kind

    # Parts ---------------------------------------------------------------------------------------

    def parts(
        self, node: ir.Node, through: set[ir.Value], known: Mapping[ir.Value, PartOf]
    ) -> dict[ir.Value, PartOf]:
        """The operands of a Concat that are written into its result."""
        whole = node.outputs[0]
        operands = [v for v in node.inputs if v is not None]
        if self.memory.is_inlined(whole) or not self.is_plain(whole) or not self.is_known_at_start(whole):
            return {}
        rank = len(self.memory.shape(whole))
        axis = node.attributes["axis"].as_int() % rank
        found: dict[ir.Value, PartOf] = {}
        position = ZERO
        total = sum((self.memory.shape(v)[axis] for v in operands), ZERO)
        for value in operands:
            shape = self.memory.shape(value)
            is_placed = value in through or value in known or value in found
            if not is_placed and shape[axis] != ZERO and self.may_be_part(value, node, whole):
                start = tuple(position if d == axis else ZERO for d in range(rank))
                found[value] = PartOf(whole, start, self.guards(value, whole, axis, total))
            position = position + shape[axis]
        return found

    def may_be_part(self, value: ir.Value, node: ir.Node, whole: ir.Value) -> bool:
        producer = value.producer()
        if producer is None or producer not in self.needed or producer.graph is not node.graph:
            return False
        if not self.is_free(value) or not self.is_known_at_start(value):
            return False
        if self.memory.order(value) != self.memory.order(whole) or self.memory.is_alias(producer):
            return False
        if producer in self.memory.inference.measured or self.kind_writing(producer, value) not in _WRITERS:
            return False
        return all(r.kinds and r.kinds <= _READERS for r in self.readers(value))

    def kind_writing(self, node: ir.Node, value: ir.Value) -> str:
        function = self.memory.model.functions.get(node.op_identifier())
        inner = node if function is None else function.outputs[value.index() or 0].producer()
        operator = None if inner is None else catalog.find(inner.domain, inner.op_type)
        return "other" if operator is None else operator.kind

    def guards(self, value: ir.Value, whole: ir.Value, axis: int, total: IntExpr) -> tuple[GraphGuard, ...]:
        """That the part lies inside of the whole, as far as expressions don't show it: it is written before
        the node's own checks are made."""
        pairs = [
            (total if d == axis else extent, self.memory.shape(whole)[d], f"Concat, axis {d}")
            for d, extent in enumerate(self.memory.shape(value))
        ]
        return tuple(GraphGuard(have, "==", want, text) for have, want, text in pairs if have != want)

    # Values --------------------------------------------------------------------------------------

    def dtype(self, value: ir.Value) -> DType:
        return self.memory.inference.known[value].dtype

    def is_free(self, value: ir.Value) -> bool:
        """Whether only regions need the value."""
        known = self.memory.inference.known.get(value)
        if known is None or not value.name or value.is_graph_output() or value.is_graph_input():
            return False
        return value not in self.memory.inference.read and self.is_plain(value)

    def is_plain(self, value: ir.Value) -> bool:
        """A tensor in memory whose elements have bytes of their own. Constants are packed for each reader."""
        known = self.memory.inference.known[value]
        return known.constant is None and not self.memory.is_inlined(value) and not known.dtype.is_packed

    def is_known_at_start(self, value: ir.Value) -> bool:
        """Whether memory can be held ready for it, and addressed, before anything has run."""
        symbols = {s for dim in self.memory.shape(value) for s in dim.symbols()}
        return symbols <= self.memory.inference.free


def _axis(dim: int, shape: Index) -> IntExpr:
    if dim >= len(shape) or shape[dim] == ONE:
        return ZERO
    return IntExpr.of(f"%{dim}")


def _axes(entry: IntExpr) -> list[str]:
    return sorted(s for s in entry.symbols() if s.startswith("%"))


def _has_extremes(entry: IntExpr) -> bool:
    """Bounds that only data or sizes decide: kernels could not tell what they read."""
    calls = [atom for atom in entry.atoms() if isinstance(atom, Call)]
    return any(c.function in ("min", "max") or any(map(_has_extremes, c.args)) for c in calls)
