"""Which values have no memory of their own: views that their readers look through, and parts of a Concat.

A view (Slice, Split, Transpose, …) between two kernels costs a copy of its own. Where its readers can follow
its index expressions instead, they read its operand. A value that a kernel makes for a Concat is written
where it will stand in the result, and whoever else reads it finds it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ONE, ZERO, Call, IntExpr, product
from cuvil_build.kernel.expr import INPUT, Buffer
from cuvil_build.kernel.view import is_affine_reshape
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
_HEAVY = frozenset("contraction window".split())
_MOST_ALIKE = 8
"""Blocks of one value, each with a product or convolution of its own: where one stands is part of a kernel,
and a network unrolled over time would have as many kernels as steps instead of one."""
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
    in_place: Mapping[ir.Node, frozenset[int]]
    """Of each Concat: the operands that need no copy."""
    carried: Mapping[ir.Value, tuple[ir.Node, ...]]
    """Values that a region does not store: it stores what these nodes, one after the other, make of them."""

    def carrying(self) -> frozenset[ir.Node]:
        """The nodes of `carried`."""
        return frozenset(node for chain in self.carried.values() for node in chain)

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

    index: Index
    is_window: bool
    """Whether it is a block of the operand's memory, its dims in the same order."""
    is_contiguous: bool
    """Whether neighbours in memory are neighbours of the operand, or the same element."""
    is_broadcast: bool
    reshapes: int
    """Up to a reader, this one included."""
    readers: frozenset[str]
    """Kinds of operators that its index expressions leave their schedules."""


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
    through: set[ir.Value] = field(default_factory=set)
    placed: dict[ir.Value, PartOf] = field(default_factory=dict)
    in_place: dict[ir.Node, frozenset[int]] = field(default_factory=dict)
    carried: dict[ir.Value, tuple[ir.Node, ...]] = field(default_factory=dict)

    def place(self) -> Placement:
        graphs = [self.memory.model.graph, *self.memory.model.graph.subgraphs()]
        nodes = [node for graph in graphs for node in graph if node in self.needed]
        for node in reversed(nodes):
            for value in node.outputs:
                view = self.view(node, value)
                if view is not None and self.is_worth_it(value, view):
                    self.views[value] = view
        aliases = [node for node in nodes if self.memory.is_alias(node)]
        self.through = set(self.views) - {node.outputs[0] for node in aliases}
        for node in nodes:
            if (node.domain, node.op_type) == ("", "Concat") and node.outputs[0] not in self.through:
                self.place_parts(node)
        for node in aliases:
            if node.inputs[0] in self.through or node.inputs[0] in self.placed:
                self.through.add(node.outputs[0])
        return Placement(frozenset(self.through), self.placed, self.in_place, self.carried)

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
        offset = sum((i * s for i, s in zip(index, self.strides(source), strict=True)), ZERO)
        wide = [d for d in order if shape[d] != ONE]
        moving = [index[d] for d in self.memory.order(source) if _axes(index[d])]
        is_window = [_axes(entry) for entry in moving] == [[f"%{d}"] for d in wide] and all(
            entry.coefficient(_axes(entry)[0]) == ONE for entry in moving
        )
        factor = offset.coefficient(f"%{wide[-1]}") if wide else ZERO
        used = {name for entry in index for name in _axes(entry)}
        is_broadcast = any(f"%{d}" not in used for d in wide)
        is_linear = all(entry.coefficient(name) is not None for entry in index for name in _axes(entry))
        reshapes = max((self.views[v].reshapes for v in self.view_readers(value)), default=0)
        readers = _READERS if is_linear else self.readers_of_reshaped(value, source)
        contiguous = factor in (ZERO, ONE)
        return _View(index, is_window, contiguous, is_broadcast, reshapes + (not is_linear), readers)

    def readers_of_reshaped(self, value: ir.Value, source: ir.Value) -> frozenset[str]:
        """A product's axes are split until divisions are gone; a convolution's never, nor those of an image
        that is enlarged."""
        node = value.producer()
        is_reshape = node is not None and node.op_type in ("Flatten", "Reshape")
        if is_reshape and is_affine_reshape(self.memory.shape(source), self.memory.shape(value)):
            return _READERS - {"window"}
        return _ONCE

    def is_worth_it(self, value: ir.Value, view: _View) -> bool:
        """A block whose neighbours are neighbours is as good as memory of its own, whoever reads it, and what
        is spread has fewer bytes than its copy. Other views are looked through by a single reader: a copy
        serves any number of them, and reading as the copy would read costs no more than the copy, once.
        Products and reductions read an operand again and again, so that its neighbours must be neighbours."""
        readers = list(self.readers(value))
        if not readers or any(not r.kinds or r.kinds - view.readers for r in readers):
            return False
        if view.reshapes > _MOST_RESHAPES:
            return False
        if any(r.kinds & _HEAVY for r in readers) and self.alike(value) > _MOST_ALIKE:
            return False
        if view.is_contiguous and (view.is_window or view.is_broadcast):
            return True
        if len(readers) > 1:
            return False
        (reader,) = readers
        if view.is_contiguous or reader.kinds <= {"copy"}:
            return True
        count = product(self.memory.shape(value))
        return reader.kinds <= _ONCE and any(count == product(self.memory.shape(r)) for r in reader.results)

    def alike(self, value: ir.Value) -> int:
        """How many views of its shape the same nodes take of the same operand."""
        node = value.producer()
        assert node is not None and node.inputs[0] is not None
        nodes = dict.fromkeys(use.node for use in node.inputs[0].uses() if use.node.op_type == node.op_type)
        return sum(
            v in self.memory.inference.known and self.memory.shape(v) == self.memory.shape(value)
            for n in nodes
            for v in n.outputs
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

    def place_parts(self, node: ir.Node) -> None:
        """Finds the operands of a Concat that can be written into its result."""
        whole = node.outputs[0]
        operands = [v for v in node.inputs if v is not None]
        if self.memory.is_inlined(whole) or not self.is_plain(whole) or not self.is_known_at_start(whole):
            return
        axis = node.attributes["axis"].as_int() % len(self.memory.shape(whole))
        total = sum((self.memory.shape(v)[axis] for v in operands), ZERO)
        position, number = ZERO, 0
        in_place: set[int] = set()
        while number < len(operands):
            value, count = self.next_part(operands[number:], axis)
            if self.may_be_part(value, node, whole):
                start = tuple(position if d == axis else ZERO for d in self.dims(whole))
                self.placed[value] = PartOf(whole, start, self.guards(value, whole, axis, total))
                in_place |= {*range(number, number + count)}
            position = position + sum((self.memory.shape(v)[axis] for v in operands[number:][:count]), ZERO)
            number += count
        if in_place:
            self.in_place[node] = frozenset(in_place)

    def next_part(self, operands: Sequence[ir.Value], axis: int) -> tuple[ir.Value, int]:
        """The value that the first operands are, and how many these are: more than one where they are all
        blocks of one value in its own order."""
        source = self.cut_from(operands[0], axis, ZERO)
        position = ZERO
        for count, value in enumerate(operands, 1):
            if source is None or self.cut_from(value, axis, position) is not source:
                break
            position = position + self.memory.shape(value)[axis]
            if position == self.memory.shape(source)[axis]:
                return source, count
        return operands[0], 1

    def cut_from(self, value: ir.Value, axis: int, position: IntExpr) -> ir.Value | None:
        """The value that this one is a block of, whole but for one axis."""
        producer = value.producer()
        if value not in self.through or producer is None or producer.inputs[0] is None:
            return None
        source, shape, index = producer.inputs[0], self.memory.shape(value), self.views[value].index
        same = [position if d == axis else ZERO for d in self.dims(value)]
        cut = [entry - _axis(d, shape) for d, entry in enumerate(index)] if len(index) == len(shape) else None
        others = [d for d in self.dims(value) if d != axis]
        if cut != same or any(shape[d] != self.memory.shape(source)[d] for d in others):
            return None
        return source

    def may_be_part(self, value: ir.Value, node: ir.Node, whole: ir.Value) -> bool:
        if not self.is_free(value) or value in self.through or value in self.placed:
            return False
        shape, order = self.memory.shape(value), self.memory.order(value)
        if not self.is_known_at_start(value) or order != self.memory.order(whole) or ZERO in shape:
            return False
        readers = list(self.readers(value))
        if any(not r.kinds or r.kinds - _READERS for r in readers):
            return False
        inner = next((d for d in reversed(order) if shape[d] != ONE), None)
        if inner is not None and self.strides(whole)[inner] != ONE and len(readers) > 1:
            return False  # neighbours are apart there: good enough to write them once
        chain = self.chain_to(value)
        first = value if not chain else chain[0].inputs[0]
        if first is None or not self.is_written_by_region(first, node):
            return False
        alike = sum(self.memory.shape(v) == shape for v in node.inputs if v is not None)
        if alike > _MOST_ALIKE and self.kind_writing(first) in _HEAVY:
            return False
        if chain and first.producer() in self.in_place:
            return False  # others write into it
        if chain:
            self.carried[first] = chain
        return True

    def chain_to(self, value: ir.Value) -> tuple[ir.Node, ...]:
        """Nodes that only reshape what nobody else reads, up to this value: their first operand need not be
        stored, what they make of it can."""
        chain: list[ir.Node] = []
        current = value
        while (node := current.producer()) is not None and self.memory.is_alias(node):
            source = node.inputs[0]
            if source is None or not self.may_be_carried(node, source):
                break
            chain.insert(0, node)
            current = source
        return tuple(chain)

    def may_be_carried(self, node: ir.Node, source: ir.Value) -> bool:
        inference = self.memory.inference
        if node in inference.measured or inference.guards.get(node) or inference.defined.get(node):
            return False
        if not self.is_free(source) or source in self.placed or source in self.through:
            return False
        if len([use for use in source.uses() if use.node in self.needed]) != 1:
            return False
        known = known_by_name([node], {}, inference)
        return access(node_row(node), known, 0, inference.bounds) is not None

    def is_written_by_region(self, value: ir.Value, node: ir.Node) -> bool:
        producer = value.producer()
        if producer is None or producer not in self.needed or producer.graph is not node.graph:
            return False
        if self.memory.is_alias(producer) or producer in self.memory.inference.measured:
            return False
        return self.kind_writing(value) in _WRITERS

    def kind_writing(self, value: ir.Value) -> str:
        node = value.producer()
        assert node is not None
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

    def dims(self, value: ir.Value) -> range:
        return range(len(self.memory.shape(value)))

    def strides(self, value: ir.Value) -> Index:
        return Buffer(
            "", self.dtype(value), self.memory.shape(value), self.memory.order(value), INPUT
        ).strides()

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
