"""Lowers a whole graph: each node or fused call becomes a region, an alias or a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.ops import catalog
from cuvil_build.ops.dropout import keeps_all
from cuvil_build.ops.infer import attributes_of
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
    RegionItem,
)
from cuvil_build.ops.lowering import RegionNode, lower_index_check, lower_region
from cuvil_build.ops.needed import needed_nodes
from cuvil_build.ops.operator import Known

ALIASES = frozenset("Dropout Flatten Identity Reshape Squeeze Unsqueeze".split())
"""Operators whose result is their operand's memory under another shape, where that is row-major."""

LOWEST = -(1 << 62)
"""No number of a model is lower: where nothing is known, a symbol has no lower limit."""

Order = Callable[[ir.Value, int], tuple[int, ...]]


def lower_graph(model: ir.Model, inference: Inference, order_of: Order) -> LoweredGraph:
    """`order_of(value, rank)` is a value's physical order of dims."""
    walk = _Walk(model, inference, order_of, needed_nodes(model, inference))
    body = walk.body(model.graph, "")
    for value in (*model.graph.inputs, *model.graph.outputs):
        walk.value(value)
    return LoweredGraph(
        walk.values,
        tuple(_name(v) for v in model.graph.inputs),
        body,
        dict(sorted(read_dims(model).items())),
        walk.limits,
        walk.lows,
    )


def _row(node: ir.Node) -> RegionNode:
    return RegionNode(
        node.name or node.op_type,
        node.op_type,
        tuple("" if v is None else _name(v) for v in node.inputs),
        tuple(v.name or "" for v in node.outputs),
        attributes_of(node),
        "" if node.domain == "ai.onnx" else node.domain,
    )


def _name(value: ir.Value) -> str:
    assert value.name is not None
    return value.name


@dataclass
class _Walk:
    model: ir.Model
    inference: Inference
    order_of: Order
    needed: set[ir.Node]
    values: dict[str, GraphValue] = field(default_factory=dict)
    limits: dict[str, IntExpr | None] = field(default_factory=dict)
    lows: dict[str, IntExpr] = field(default_factory=dict)

    def value(self, value: ir.Value) -> str:
        name = _name(value)
        if name not in self.values:
            known = self.inference.known[value]
            tensor = value.const_value
            digest = (digest_of(tensor) if tensor is not None else None) or ""
            order = self.order_of(value, len(known.shape))
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
                if self.inference.guards.get(node):
                    items.append(GuardItem(self.guards(node)))
                items += self.definitions(node)
        for value in graph.outputs:
            self.value(value)
        return Body(tuple(items), tuple(_name(v) for v in graph.outputs))

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
        else:
            yield from self.index_checks(node, place)
            yield self.alias(node) if self.is_alias(node) else self.region(node, place)

    def alias(self, node: ir.Node) -> AliasItem:
        assert node.inputs[0] is not None
        return AliasItem(self.value(node.inputs[0]), self.value(node.outputs[0]), self.guards(node))

    def is_alias(self, node: ir.Node) -> bool:
        if node.domain != "" or node.op_type not in ALIASES or node.inputs[0] is None:
            return False
        if self.is_inlined(node.inputs[0]):
            return False  # shape arithmetic has no memory
        if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
            return False  # the mask of Dropout is not memory of its operand
        if node.op_type == "Dropout" and not self.keeps_all(node):
            return False
        source, result = (self.values[self.value(v)] for v in (node.inputs[0], node.outputs[0]))
        return (source.is_row_major and result.is_row_major) or (
            source.shape == result.shape and source.order == result.order
        )

    def keeps_all(self, node: ir.Node) -> bool:
        ratio, training = (*node.inputs[1:3], None, None)[:2]
        return keeps_all(*(None if v is None else self.inference.known[v] for v in (ratio, training)))

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
        names = [f"{_name(node.outputs[0])}#{n}" for n in range(len(dims))]
        for name in names:
            self.values[name] = GraphValue(name, INT64, (), ())
        operands = self.operands([node], list(dict.fromkeys(v for v in node.inputs if v is not None)))
        known = self.known_values([node], {}) | dict.fromkeys(names, Known(INT64, ()))
        inputs = [(_name(v), self.buffer(v, f"x{i}", INPUT)) for i, v in enumerate(operands)]
        outputs = [(name, Buffer(f"y{i}", INT64, (), (), OUTPUT)) for i, name in enumerate(names)]
        row = replace(_row(node), outputs=tuple(names), measures=True)
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
        known = self.known_values([node], actual)
        inputs = [(_name(formal), self.buffer(indices, "x0", INPUT))]
        region, highs = lower_index_check(_row(node), known, inputs, self.inference.bounds)
        names = tuple(f"{_name(node.outputs[0])}#{place}#{n}" for n in range(len(highs)))
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
            is_inlined = self.is_inlined(initial)
            if same and not is_inlined:
                yield AliasItem(self.value(initial), self.value(formal))
                after.append(AliasItem(self.value(initial), self.value(result)))
            elif same:
                after.append(self.written(initial, _name(result), f"{place}/result{n}"))
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
            number = f"{_name(body.inputs[0])}#{place}"
            written = self.written(body.inputs[0], number, f"{place}/number")
            inner = Body((written, *inner.items), inner.outputs)
            outputs = [number if v == _name(body.inputs[0]) else v for v in outputs]
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
        row = RegionNode(_name(source), "Identity", (_name(source),), (name,), {})
        facts = {_name(source): known, name: Known(known.dtype, known.shape)}
        target = Buffer("y0", known.dtype, known.shape, order, OUTPUT)
        region = lower_region([row], facts, [], [(name, target)], self.inference.bounds)
        return RegionItem(place, region, (), (name,), (_name(source),))

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
        operands = [(f, a) for f, a in zip(formals, actuals) if a is not None and f in kept]
        results = list(function.outputs) if function is not None else list(node.outputs)
        stored = [(f, a) for f, a in zip(results, node.outputs) if a.name and self.is_stored(a)]
        known = self.known_values(nodes, dict(zip(formals, actuals)))
        inputs = [(_name(f), self.buffer(a, f"x{i}", INPUT)) for i, (f, a) in enumerate(operands)]
        outputs = [(_name(f), self.buffer(a, f"y{i}", OUTPUT)) for i, (f, a) in enumerate(stored)]
        region = self.lowered(nodes, known, inputs, outputs)
        return RegionItem(
            place,
            region,
            tuple(self.value(a) for _, a in operands),
            tuple(self.value(a) for _, a in stored),
            tuple(source_nodes(node)) or (node.name or node.op_type,),
            self.guards(node) + tuple(g for n in nodes if n is not node for g in self.guards(n)),
        )

    def lowered(
        self,
        nodes: Sequence[ir.Node],
        known: dict[str, Known],
        inputs: list[tuple[str, Buffer]],
        outputs: list[tuple[str, Buffer]],
    ) -> LoweredRegion:
        return lower_region([_row(n) for n in nodes], known, inputs, outputs, self.inference.bounds)

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
        return [f for f, a in bound.items() if a is not None and not self.is_inlined(a)]

    def is_inlined(self, value: ir.Value) -> bool:
        """Scalars known at build time and shape arithmetic are written into kernels."""
        known = self.inference.known[value]
        if known.constant is not None:
            return known.constant.size == 1
        is_port = value.is_graph_input() and value.graph is self.model.graph
        return known.contents is not None and not is_port

    def is_stored(self, value: ir.Value) -> bool:
        """Results that nobody reads are still written when an operator can't leave them out."""
        return bool(value.uses()) or value.is_graph_output() or value.index() == 0

    def known_values(
        self, nodes: Sequence[ir.Node], binding: Mapping[ir.Value, ir.Value | None]
    ) -> dict[str, Known]:
        """Of the region's values by the names that its nodes use."""
        actual = {f: a for f, a in binding.items() if a is not None}
        made = {v for n in nodes for v in n.outputs}
        read = {v for n in nodes for v in n.inputs if v is not None and v.name} - made
        found = {_name(v): self.inference.operand(actual.get(v, v)) for v in read}
        return found | {_name(v): self.inference.known[actual.get(v, v)] for v in made if v.name}

    def buffer(self, value: ir.Value, name: str, role: str) -> Buffer:
        known = self.inference.known[value]
        order = self.order_of(value, len(known.shape))
        return Buffer(name, known.dtype, known.shape, order, role, known.constant is not None)
