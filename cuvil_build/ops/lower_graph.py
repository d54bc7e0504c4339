"""Lowers a whole graph: each node or fused call becomes a region, an alias or a branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from cuvil_build.cuir.dims import read_dims
from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import ZERO, IntExpr, maximum, minimum
from cuvil_build.cuir.locations import location_of, source_nodes
from cuvil_build.cuir.naming import fresh_name
from cuvil_build.cuir.weights import digest_of
from cuvil_build.errors import CuvilError
from cuvil_build.kernel.expr import INPUT, OUTPUT, Buffer
from cuvil_build.ops import catalog
from cuvil_build.ops.in_memory import ALIASES, InMemory, Order
from cuvil_build.ops.infer_loop import LoopFacts
from cuvil_build.ops.inference import Inference, MeasuredDim
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    DefineItem,
    GraphGuard,
    GraphValue,
    GuardItem,
    Item,
    LoopDim,
    LoopItem,
    LoopState,
    LoweredGraph,
    Measured,
    MeasureItem,
    Part,
    RegionItem,
)
from cuvil_build.ops.lowering import RegionNode, Windows, lower_index_check, lower_region
from cuvil_build.ops.needed import needed_nodes
from cuvil_build.ops.operator import Known
from cuvil_build.ops.placement import Index, Placement, place_values
from cuvil_build.ops.region_reads import RegionReads, renamed
from cuvil_build.ops.region_rows import known_by_name, name_of, node_row

__all__ = ["ALIASES", "lower_graph"]

LOWEST = -(1 << 62)
"""No number of a model is lower: where nothing is known, a symbol has no lower limit."""


def lower_graph(model: ir.Model, inference: Inference, order_of: Order, fast: bool = False) -> LoweredGraph:
    """`order_of(value, rank)` is a value's physical order of dims; `fast` as of `lower_region`."""
    needed, memory = needed_nodes(model, inference), InMemory(model, inference, order_of)
    placement = place_values(memory, needed)
    walk = _Walk(model, inference, memory, needed, placement, placement.carrying(), fast)
    body = walk.body(model.graph, "")
    for value in (*model.graph.inputs, *model.graph.outputs):
        walk.value(value)
    return LoweredGraph(
        walk.values,
        tuple(name_of(v) for v in model.graph.inputs),
        body,
        dict(sorted(read_dims(model).items())),
        walk.limits,
        walk.lows,
    )


@dataclass
class _Walk:
    model: ir.Model
    inference: Inference
    memory: InMemory
    needed: set[ir.Node]
    placement: Placement
    carrying: frozenset[ir.Node]
    """Nodes whose result the region before stores."""
    fast: bool
    values: dict[str, GraphValue] = field(default_factory=dict)
    limits: dict[str, IntExpr | None] = field(default_factory=dict)
    lows: dict[str, IntExpr] = field(default_factory=dict)

    def value(self, value: ir.Value) -> str:
        name = name_of(value)
        if name not in self.values:
            known = self.inference.known[value]
            tensor = value.const_value
            digest = (digest_of(tensor) if tensor is not None else None) or ""
            order = self.memory.order(value)
            self.values[name] = GraphValue(name, known.dtype, known.shape, order, known.constant, digest)
        return name

    def body(self, graph: ir.Graph, path: str) -> Body:
        items: list[Item] = [item for value in graph.inputs for item in self.readings(value)]
        for number, node in enumerate(graph):
            if node in self.needed:
                try:
                    items += self.node(node, f"{path}{number}")
                except CuvilError as error:
                    raise error.at(location_of(node)) from None
                items += [item for value in node.outputs for item in self.readings(value)]
            else:
                items += self.checks_alone(node)
                items += self.definitions(node)
        for value in graph.outputs:
            self.value(value)
        return Body(tuple(items), tuple(name_of(v) for v in graph.outputs))

    def guards(self, node: ir.Node) -> tuple[GraphGuard, ...]:
        return tuple(
            GraphGuard(g.left, g.relation, g.right, g.message) for g in self.inference.guards.get(node, ())
        )

    def node(self, node: ir.Node, place: str) -> Iterator[Item]:
        yield from self.measure(node, place)
        yield from self.definitions(node)
        if (node.domain, node.op_type) == ("", "If"):
            yield self.branch(node, place)
        elif (node.domain, node.op_type) == ("", "Loop"):
            yield from self.loop(node, place)
        elif self.needs_no_code(node):
            yield from self.checks_alone(node)
        elif self.memory.is_alias(node):
            yield self.alias(node)
        elif node in self.placement.in_place:
            yield from self.concat(node, place)
        else:
            yield from self.index_checks(node, place)
            yield self.region(node, place)

    def needs_no_code(self, node: ir.Node) -> bool:
        """Whether readers look through all its results, or the region before stores them."""
        if node in self.carrying:
            return True
        return all(v in self.placement.through for v in node.outputs if self.memory.is_stored(v))

    def checks_alone(self, node: ir.Node) -> Iterator[Item]:
        if self.inference.guards.get(node):
            yield GuardItem(self.guards(node))

    def alias(self, node: ir.Node) -> AliasItem:
        assert node.inputs[0] is not None
        return AliasItem(self.value(node.inputs[0]), self.value(node.outputs[0]), self.guards(node))

    # Numbers that data decides -------------------------------------------------------------------

    def symbol(self, name: str, low: IntExpr | None, high: IntExpr | None) -> None:
        self.limits[name] = high
        if low is not None:
            self.lows[name] = low

    def measured(self, dim: MeasuredDim, element: int) -> Measured:
        self.symbol(dim.name, IntExpr.of(dim.low) if dim.low > LOWEST else None, dim.high)
        return Measured(dim.name, element, dim.low, dim.high, dim.what)

    def definitions(self, node: ir.Node) -> Iterator[Item]:
        values = self.inference.defined.get(node, ())
        for name, value in values:
            low = self.inference.bounds[name][0]
            self.symbol(name, IntExpr.of(low) if low > LOWEST else None, value)
        if values:
            yield DefineItem(values)

    def readings(self, value: ir.Value) -> Iterator[Item]:
        """What is read of a value as soon as it is there."""
        read = self.inference.read.get(value)
        if read is not None and read.dims:
            dims = tuple(self.measured(dim, n) for n, dim in enumerate(read.dims))
            yield MeasureItem(self.value(value), dims)

    def measure(self, node: ir.Node, place: str) -> Iterator[Item]:
        """The numbers that the node's own kernels need before they run: a region of its own."""
        dims = self.inference.measured.get(node, ())
        if not dims:
            return
        names = [f"{name_of(node.outputs[0])}#{n}" for n in range(len(dims))]
        for name in names:
            self.values[name] = GraphValue(name, INT64, (), ())
        operands = self.operands([node], list(dict.fromkeys(v for v in node.inputs if v is not None)))
        known = known_by_name([node], {}, self.inference) | dict.fromkeys(names, Known(INT64, ()))
        inputs = [(name_of(v), self.buffer(v, f"x{i}", INPUT)) for i, v in enumerate(operands)]
        outputs = [(name, Buffer(f"y{i}", INT64, (), (), OUTPUT)) for i, name in enumerate(names)]
        row = replace(node_row(node), outputs=tuple(names), measures=True)
        region = lower_region([row], known, inputs, outputs, self.inference.bounds)
        yield RegionItem(
            f"{place}/measure",
            region,
            tuple(self.value(v) for v in operands),
            tuple(names),
            tuple(source_nodes(node)) or (node.name or node.op_type,),
        )
        for name, dim in zip(names, dims):
            yield MeasureItem(name, (self.measured(dim, 0),))

    def index_checks(self, node: ir.Node, place: str) -> Iterator[Item]:
        """Positions in memory that data gives are looked at before kernels follow them. What a region itself
        computes can't be: kernels keep such positions inside."""
        function = self.model.functions.get(node.op_identifier())
        nodes: Sequence[ir.Node] = list(function) if function is not None else [node]
        actual = dict(zip(function.inputs, node.inputs)) if function is not None else {}
        for number, inner in enumerate(nodes):
            operator = catalog.find(inner.domain, inner.op_type)
            if operator is None or operator.index_operand is None or inner not in self.needed:
                continue
            formal = inner.inputs[operator.index_operand]
            indices = actual.get(formal, formal) if formal is not None else None
            if formal is None or indices is None or (function is not None and formal not in actual):
                continue
            found = self.inference.operand(indices)
            if found.constant is None and found.contents is None:
                yield from self.index_check(inner, formal, indices, actual, f"{place}/{number}/check")

    def index_check(
        self,
        node: ir.Node,
        formal: ir.Value,
        indices: ir.Value,
        actual: Mapping[ir.Value, ir.Value | None],
        place: str,
    ) -> Iterator[Item]:
        known = known_by_name([node], actual, self.inference)
        inputs = [(name_of(formal), self.buffer(indices, "x0", INPUT))]
        region, highs = lower_index_check(node_row(node), known, inputs, self.inference.bounds)
        names = tuple(f"{name_of(node.outputs[0])}#{place}#{n}" for n in range(len(highs)))
        for name in names:
            self.values[name] = GraphValue(name, INT64, (), ())
        nodes = tuple(source_nodes(node)) or (node.name or node.op_type,)
        yield RegionItem(place, region, (self.value(indices),), names, nodes)
        for name, high in zip(names, highs):
            what = f"the largest index of node '{node.name}'"
            symbol = fresh_name("largest_index", {*self.inference.bounds, *self.limits})
            self.symbol(symbol, IntExpr.of(-1), high)
            yield MeasureItem(name, (Measured(symbol, 0, -1, high, what),))

    # Loops ---------------------------------------------------------------------------------------

    def loop(self, node: ir.Node, place: str) -> Iterator[Item]:
        facts = self.inference.loops[node]
        body = node.attributes["body"].as_graph()
        self.symbol(facts.iteration, ZERO, None if facts.trips is None else facts.trips - 1)
        self.symbol(facts.count, ZERO, facts.trips)
        guards = list(self.state_dims(facts))
        states: list[LoopState] = []
        carried: list[ir.Value] = []
        after: list[Item] = []
        for n, same in enumerate(facts.same):
            initial, formal, result = node.inputs[2 + n], body.inputs[2 + n], node.outputs[n]
            assert initial is not None
            is_inlined = self.memory.is_inlined(initial)
            if same and not is_inlined:
                yield AliasItem(self.value(initial), self.value(formal))
                after.append(AliasItem(self.value(initial), self.value(result)))
            elif same:
                after.append(self.written(initial, name_of(result), f"{place}/result{n}"))
                self.value(result)
            else:
                start = self.value(initial)
                if is_inlined and self.inference.known[initial].constant is None:
                    start = f"{start}#{place}"
                    yield self.written(initial, start, f"{place}/initial{n}")
                states.append(LoopState(start, self.value(formal), self.value(result)))
                carried.append(body.outputs[1 + n])
        inner = self.body(body, f"{place}/body/")
        scanned = body.outputs[1 + len(facts.same) :]
        condition = node.inputs[1] if len(node.inputs) > 1 else None
        outputs = [self.value(v) for v in (body.outputs[0], *carried, *scanned)]
        if body.inputs[0] in body.outputs:
            number = f"{name_of(body.inputs[0])}#{place}"
            written = self.written(body.inputs[0], number, f"{place}/number")
            inner = Body((written, *inner.items), inner.outputs)
            outputs = [number if v == name_of(body.inputs[0]) else v for v in outputs]
        guards += self.element_dims(facts)
        if guards:
            inner = Body((*inner.items, GuardItem(tuple(guards))), inner.outputs)
        yield LoopItem(
            place,
            facts.trips,
            "" if condition is None or facts.starts else self.value(condition),
            Body(inner.items, tuple(outputs)),
            facts.iteration,
            facts.count,
            tuple(states),
            tuple(self.value(v) for v in node.outputs[len(facts.same) :]),
            tuple(LoopDim(dim.name, dim.initial, dim.next) for dim in facts.dims),
            self.guards(node),
        )
        yield from after

    def state_dims(self, facts: LoopFacts) -> Iterator[GraphGuard]:
        """Dims of states that the body changes, and the checks of those that the user bounds."""
        for dim in (d for d in facts.dims if not d.is_steady):
            limit = self.inference.bounds[dim.name][1]
            self.symbol(dim.name, ZERO, None if limit is None else IntExpr.of(limit))
            if limit is not None:
                yield GraphGuard(dim.next, "<=", IntExpr.of(limit), f"dim '{dim.name}'")

    def element_dims(self, facts: LoopFacts) -> Iterator[GraphGuard]:
        """Dims of scanned elements that the body computes: those of the first iteration hold for all."""
        for dim in (d for d in facts.dims if d.is_steady):
            self.symbol(dim.name, ZERO, dim.next)
            gap = (dim.next - IntExpr.of(dim.name)) * minimum(IntExpr.of(facts.iteration), 1)
            yield GraphGuard(gap, "==", ZERO, f"dim '{dim.name}' differs from one iteration to the next")

    def written(self, source: ir.Value, name: str, place: str) -> RegionItem:
        """Shape arithmetic, or a scalar, as a value in memory."""
        known = self.inference.operand(source)
        order = tuple(range(known.rank))
        self.values.setdefault(name, GraphValue(name, known.dtype, known.shape, order))
        row = RegionNode(name_of(source), "Identity", (name_of(source),), (name,), {})
        facts = {name_of(source): known, name: Known(known.dtype, known.shape)}
        target = Buffer("y0", known.dtype, known.shape, order, OUTPUT)
        region = lower_region([row], facts, [], [(name, target)], self.inference.bounds)
        return RegionItem(place, region, (), (name,), (name_of(source),))

    # Branches ------------------------------------------------------------------------------------

    def branch(self, node: ir.Node, place: str) -> BranchItem:
        assert node.inputs[0] is not None
        then_graph = node.attributes["then_branch"].as_graph()
        else_graph = node.attributes["else_branch"].as_graph()
        then_body = self.body(then_graph, f"{place}/then/")
        else_body = self.body(else_graph, f"{place}/else/")
        # after the symbols of both bodies, which their values may be over
        for dim in self.inference.local_dims.get(node, ()):
            self.symbol(dim.name, ZERO, maximum(dim.then_value, dim.else_value))
        local = tuple(
            (dim.name, dim.then_value, dim.else_value) for dim in self.inference.local_dims.get(node, ())
        )
        return BranchItem(
            place,
            self.value(node.inputs[0]),
            then_body,
            else_body,
            tuple(self.value(v) for v in node.outputs),
            local,
            self.guards(node),
        )

    # Regions -------------------------------------------------------------------------------------

    def region(self, node: ir.Node, place: str) -> RegionItem:
        function = self.model.functions.get(node.op_identifier())
        nodes: Sequence[ir.Node] = list(function) if function is not None else [node]
        formals = list(function.inputs) if function is not None else [v for v in node.inputs if v is not None]
        formals = list(dict.fromkeys(formals))
        actuals = list(node.inputs) if function is not None else formals
        kept = set(self.operands(nodes, formals, dict(zip(formals, actuals)), function is None))
        results = list(function.outputs) if function is not None else list(node.outputs)
        rows = [node_row(n) for n in nodes]
        reads = self.reads(rows)
        names = {
            name_of(f): reads.add(a, name_of(f))
            for f, a in zip(formals, actuals)
            if a is not None and f in kept
        }
        known = known_by_name(nodes, dict(zip(formals, actuals)), self.inference)
        rows = renamed(rows, names)
        stored: list[tuple[str, ir.Value]] = []
        for f, a in zip(results, node.outputs):
            if self.is_written(a):
                name, value, more = reads.carried(name_of(f), a)
                rows += more
                stored.append((name, value))
        guards = self.guards(node) + tuple(g for n in nodes if n is not node for g in self.guards(n))
        return self.item(place, node, reads, rows, {**known, **reads.known}, stored, guards)

    def reads(self, rows: Sequence[RegionNode]) -> RegionReads:
        taken = {name for row in rows for name in (*row.inputs, *row.outputs)}
        return RegionReads(self.memory, self.placement, taken)

    def is_written(self, value: ir.Value) -> bool:
        if not value.name or value in self.placement.through:
            return False
        producer = value.producer()
        looked_through = producer is not None and any(v in self.placement.through for v in producer.outputs)
        is_needed = bool(value.uses()) or value.is_graph_output()
        return is_needed if looked_through else self.memory.is_stored(value)

    def item(
        self,
        place: str,
        node: ir.Node,
        reads: RegionReads,
        rows: Sequence[RegionNode],
        known: Mapping[str, Known],
        stored: Sequence[tuple[str, ir.Value]],
        guards: tuple[GraphGuard, ...],
    ) -> RegionItem:
        """The region of some rows, which stores values by the names that the rows give them."""
        outputs: list[tuple[str, Buffer]] = []
        starts: dict[str, Index] = {}
        buffers: dict[ir.Value, Buffer] = {}
        parts: list[Part] = []
        for name, value in stored:
            whole, start = self.placement.written(value) or (value, None)
            if whole not in buffers:
                buffers[whole] = self.buffer(whole, f"y{len(buffers)}", OUTPUT)
            outputs.append((name, buffers[whole]))
            if start is not None:
                starts[name] = start
                parts.append(Part(name_of(value), name_of(whole), start, known[name].shape))
            guards += self.part_guards(value)
        region = lower_region(
            [*reads.views, *rows],
            known,
            reads.inputs,
            outputs,
            self.inference.bounds,
            Windows(reads.windows, starts),
            self.fast,
        )
        return RegionItem(
            place,
            region,
            tuple(self.value(v) for v in reads.operands),
            tuple(self.value(v) for v in buffers),
            tuple(source_nodes(node)) or (node.name or node.op_type,),
            guards,
            tuple(reads.parts),
            tuple(parts),
        )

    # Concat --------------------------------------------------------------------------------------

    def part_guards(self, value: ir.Value) -> tuple[GraphGuard, ...]:
        part = self.placement.parts.get(value)
        return () if part is None else part.guards + self.part_guards(part.whole)

    def concat(self, node: ir.Node, place: str) -> Iterator[Item]:
        """The parts that nobody has written into the result, each copied by a region of its own."""
        yield from self.checks_alone(node)
        result = node.outputs[0]
        whole, start = self.placement.written(result) or (result, None)
        rank = len(self.memory.shape(result))
        axis = node.attributes["axis"].as_int() % rank
        position = ZERO
        for number, value in enumerate(v for v in node.inputs if v is not None):
            shape = self.memory.shape(value)
            if number not in self.placement.in_place[node] and shape[axis] != ZERO:
                at = tuple(position if d == axis else ZERO for d in range(rank))
                at = at if start is None else tuple(a + b for a, b in zip(at, start))
                yield self.copied_part(node, value, whole, at, f"{place}/{number}")
            position = position + shape[axis]

    def copied_part(
        self, node: ir.Node, value: ir.Value, whole: ir.Value, start: Index, place: str
    ) -> RegionItem:
        reads = self.reads([])
        known = self.inference.operand(value)
        name = name_of(value)
        if not self.memory.is_inlined(value):
            name = reads.add(value, name)
        made = fresh_name(name_of(node.outputs[0]), {name, *reads.taken})
        row = RegionNode(node.name or node.op_type, "Identity", (name,), (made,), {})
        region = lower_region(
            [*reads.views, row],
            {name: known, made: known, **reads.known},
            reads.inputs,
            [(made, self.buffer(whole, "y0", OUTPUT))],
            self.inference.bounds,
            Windows(reads.windows, {made: start}),
        )
        return RegionItem(
            place,
            region,
            tuple(self.value(v) for v in reads.operands),
            (self.value(whole),),
            tuple(source_nodes(node)) or (node.name or node.op_type,),
            (),
            tuple(reads.parts),
            (Part(name_of(value), name_of(whole), start, known.shape),),
        )

    def operands(
        self,
        nodes: Sequence[ir.Node],
        formals: Sequence[ir.Value],
        actuals: Mapping[ir.Value, ir.Value | None] | None = None,
        every: bool = True,
    ) -> list[ir.Value]:
        """The formals that a region over the nodes reads from memory."""
        used = {v for n in nodes if every or n in self.needed for v in n.inputs if v is not None}
        bound = {f: (actuals or {}).get(f, f) for f in formals if f in used}
        return [f for f, a in bound.items() if a is not None and not self.memory.is_inlined(a)]

    def buffer(self, value: ir.Value, name: str, role: str) -> Buffer:
        known = self.inference.known[value]
        order = self.memory.order(value)
        return Buffer(name, known.dtype, known.shape, order, role, known.constant is not None)
