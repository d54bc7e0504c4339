"""Lowers a whole graph: each node or fused call becomes a region, an alias or a branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from cuvil_build.cuir.dims import read_dims
from cuvil_build.cuir.locations import location_of, source_nodes
from cuvil_build.cuir.weights import digest_of
from cuvil_build.errors import CuvilError
from cuvil_build.kernel.expr import INPUT, OUTPUT, Buffer
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.ops.infer import Inference, attributes_of
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    GraphGuard,
    GraphValue,
    GuardItem,
    Item,
    LoweredGraph,
    RegionItem,
)
from cuvil_build.ops.lowering import RegionNode, lower_region
from cuvil_build.ops.needed import needed_nodes
from cuvil_build.ops.operator import Known

ALIASES = frozenset("Dropout Flatten Identity Reshape Squeeze Unsqueeze".split())
"""Operators whose result is their operand's memory under another shape, where that is row-major."""

Order = Callable[[ir.Value, int], tuple[int, ...]]


def lower_graph(model: ir.Model, inference: Inference, order_of: Order) -> LoweredGraph:
    """`order_of(value, rank)` is a value's physical order of dims."""
    walk = _Walk(model, inference, order_of, needed_nodes(model, inference))
    body = walk.body(model.graph, "")
    for value in (*model.graph.inputs, *model.graph.outputs):
        walk.value(value)
    return LoweredGraph(
        walk.values, tuple(_name(v) for v in model.graph.inputs), body, dict(sorted(read_dims(model).items()))
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
    _regions: dict[tuple[object, ...], LoweredRegion] = field(default_factory=dict)

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
        items: list[Item] = []
        for number, node in enumerate(graph):
            if node in self.needed:
                try:
                    items.append(self.node(node, f"{path}{number}"))
                except CuvilError as error:
                    raise error.at(location_of(node)) from None
            elif self.inference.guards.get(node):
                items.append(GuardItem(self.guards(node)))
        for value in graph.outputs:
            self.value(value)
        return Body(tuple(items), tuple(_name(v) for v in graph.outputs))

    def guards(self, node: ir.Node) -> tuple[GraphGuard, ...]:
        return tuple(
            GraphGuard(g.left, g.relation, g.right, g.message) for g in self.inference.guards.get(node, ())
        )

    def node(self, node: ir.Node, place: str) -> Item:
        if node.domain == "" and node.op_type == "If":
            return self.branch(node, place)
        if self.is_alias(node):
            assert node.inputs[0] is not None
            return AliasItem(self.value(node.inputs[0]), self.value(node.outputs[0]), self.guards(node))
        return self.region(node, place)

    def is_alias(self, node: ir.Node) -> bool:
        if node.domain != "" or node.op_type not in ALIASES or node.inputs[0] is None:
            return False
        source, result = (self.values[self.value(v)] for v in (node.inputs[0], node.outputs[0]))
        return (source.is_row_major and result.is_row_major) or (
            source.shape == result.shape and source.order == result.order
        )

    # Branches ------------------------------------------------------------------------------------

    def branch(self, node: ir.Node, place: str) -> BranchItem:
        assert node.inputs[0] is not None
        then_graph = node.attributes["then_branch"].as_graph()
        else_graph = node.attributes["else_branch"].as_graph()
        local = tuple(
            (dim.name, dim.then_value, dim.else_value) for dim in self.inference.local_dims.get(node, ())
        )
        return BranchItem(
            place,
            self.value(node.inputs[0]),
            self.body(then_graph, f"{place}/then/"),
            self.body(else_graph, f"{place}/else/"),
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
        used = {v for n in nodes if n in self.needed or function is None for v in n.inputs if v is not None}
        operands = [(f, a) for f, a in zip(formals, actuals) if a is not None and f in used]
        operands = [(f, a) for f, a in operands if not self.is_inlined(a)]
        results = list(function.outputs) if function is not None else list(node.outputs)
        stored = [(f, a) for f, a in zip(results, node.outputs) if a.name and self.is_stored(a)]
        known = self.known_values(nodes, zip(formals, actuals))
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
        rows = [
            RegionNode(
                n.name or n.op_type,
                n.op_type,
                tuple("" if v is None else _name(v) for v in n.inputs),
                tuple(v.name or "" for v in n.outputs),
                attributes_of(n),
                "" if n.domain == "ai.onnx" else n.domain,
            )
            for n in nodes
        ]
        return lower_region(rows, known, inputs, outputs, self.inference.bounds)

    def is_inlined(self, value: ir.Value) -> bool:
        """Scalars known at build time and shape arithmetic are written into kernels."""
        known = self.inference.known[value]
        if known.constant is not None:
            return known.constant.size == 1
        return known.contents is not None and not value.is_graph_input()

    def is_stored(self, value: ir.Value) -> bool:
        """Results that nobody reads are still written when an operator can't leave them out."""
        return bool(value.uses()) or value.is_graph_output() or value.index() == 0

    def known_values(
        self, nodes: Sequence[ir.Node], binding: zip[tuple[ir.Value, ir.Value | None]]
    ) -> dict[str, Known]:
        """Of the region's values by the names that its nodes use."""
        actual = {f: a for f, a in binding if a is not None}
        values = {v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None and v.name}
        return {_name(v): self.inference.known[actual.get(v, v)] for v in values}

    def buffer(self, value: ir.Value, name: str, role: str) -> Buffer:
        known = self.inference.known[value]
        order = self.order_of(value, len(known.shape))
        return Buffer(name, known.dtype, known.shape, order, role, known.constant is not None)
