"""Replaces operators that are defined by others: by their own `expand`, or by their body in ONNX's schema.

One walk infers and expands: what an expansion asks of its operands is known by the time it is written, and
what it writes is inferred, and expanded in turn, before the next node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
from onnx import GraphProto, TypeProto, ValueInfoProto

from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import captures, graphs_within, subgraphs_of
from cuvil_build.cuir.types import ir_dtype
from cuvil_build.errors import InvalidModel, NotYet, UnsupportedOperator
from cuvil_build.ops import catalog
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.infer import Rewritable, attributes_of, infer_model
from cuvil_build.ops.operator import Known
from cuvil_build.ops.schema_body import Body, call_body, has_body
from cuvil_build.ops.signature import check_call
from cuvil_build.passes import specialise_if
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.passes.rewire import can_replace, replace_value

MAX_DEPTH = 16
"""Expansions within expansions; more is a definition that leads back to itself."""


def run(model: ir.Model) -> PassResult:
    if not any(is_expandable(node, model) for graph in graphs_within(model.graph) for node in graph):
        return PassResult(model)
    expander = Expander(model)
    rewrites: tuple[Rewrite, ...] = ()
    if any(subgraphs_of(node) for graph in graphs_within(model.graph) for node in graph):
        # What follows an If may have a type only once a branch is taken.
        rewrites = specialise_if.run(model, expander, expander.describe).rewrites
    else:
        infer_model(model, annotate=False, rewrite=expander)
    return PassResult(model, (*expander.rewrites, *rewrites))


def is_expandable(node: ir.Node, model: ir.Model) -> bool:
    if node.op_identifier() in model.functions:
        return False
    operator = catalog.find(node.domain, node.op_type)
    if operator is not None:
        return operator.infer is None and operator.expand is not None
    return has_body(node.domain, node.op_type, model.opset_imports.get(node.domain, 1))


class Expander:
    """The rewriting that an inference walk does on its way."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.namer = Namer(model)
        self.rewrites: list[Rewrite] = []
        self._depth = 0

    def __call__(self, node: ir.Node, walk: Rewritable) -> Sequence[ir.Value] | None:
        """What stands for the node's outputs now; None: it stays."""
        if not is_expandable(node, self.model):
            return None
        if self._depth >= MAX_DEPTH:
            raise InvalidModel(f"the definition of {node.op_type} leads back to itself")
        self._depth += 1
        try:
            results = self._results(node, walk)
        finally:
            self._depth -= 1
        read = [
            n
            for n, v in enumerate(node.outputs)
            if v.name and (self._depth or v.uses() or v.is_graph_output())
        ]
        if len(results) <= max(read, default=-1):
            raise UnsupportedOperator(f"only {len(results)} outputs of {node.op_type} can be computed")
        if not self._depth:
            self.rewrites.append(Rewrite(f"expands {node.op_type}", (node.name or "",)))
        return self._replace(node, results, walk)

    def describe(self, node: ir.Node, walk: Rewritable) -> Sequence[ir.Value] | None:
        """Expands a copy of the node outside the model, for the types of its results."""
        if not is_expandable(node, self.model):
            return None
        stand_ins = {v: ir.Value(name=f"operand_{n}") for n, v in enumerate(node.inputs) if v is not None}
        for value, stand_in in stand_ins.items():
            walk.result.known[stand_in] = walk.result.operand(value)
        copy = ir.Node(
            node.domain,
            node.op_type,
            [None if v is None else stand_ins[v] for v in node.inputs],
            [self._apart(a, stand_ins, walk) for a in node.attributes.values()],
            num_outputs=len(node.outputs),
            name=node.name,
        )
        for old, new in zip(node.outputs, copy.outputs):
            new.name = old.name
        inherit([copy], [node])
        graph = ir.Graph(list(stand_ins.values()), [], nodes=[copy], opset_imports=self.model.opset_imports)
        apart = Expander(ir.Model(graph, ir_version=self.model.ir_version))
        apart._depth = 1  # as if something were to read every result
        results = apart(copy, walk)
        assert results is not None
        for old, new in zip(node.outputs, results):
            if new in walk.result.known:
                walk.result.known[old] = walk.result.operand(new)
        return results

    def _apart(self, attribute: ir.Attr, stand_ins: dict[ir.Value, ir.Value], walk: Rewritable) -> ir.Attr:
        """A body as a copy that reads nothing of the model."""
        if attribute.type != ir.AttributeType.GRAPH:
            return attribute
        body = attribute.as_graph().clone(allow_outer_scope_values=True)
        inside = {node for graph in graphs_within(body) for node in graph}
        for value in captures(body):
            if value not in stand_ins:
                stand_ins[value] = ir.Value(name=f"operand_{len(stand_ins)}")
                walk.result.known[stand_ins[value]] = walk.result.operand(value)
            for use in value.uses():
                if use.node in inside:
                    use.node.replace_input_with(use.idx, stand_ins[value])
        return ir.AttrGraph(attribute.name, body)

    def _results(self, node: ir.Node, walk: Rewritable) -> Sequence[ir.Value | None]:
        build = Expansion(
            node,
            self.model,
            self.namer,
            walk.result.operand,
            lambda new: self._settle(new, walk),
            walk.initializer,
            all_read=self._depth > 1,
        )
        operator = catalog.find(node.domain, node.op_type)
        if operator is None:
            return self._body(node, walk, build)
        assert operator.expand is not None
        return _expanded(operator.expand, node, build)

    def _settle(self, node: ir.Node, walk: Rewritable) -> Sequence[ir.Value]:
        stand_ins = self(node, walk)
        if stand_ins is not None:
            return stand_ins
        walk.node(node)
        return tuple(node.outputs)

    # Bodies of ONNX's schema ---------------------------------------------------------------------

    def _body(self, node: ir.Node, walk: Rewritable, build: Expansion) -> Sequence[ir.Value | None]:
        body = self._call_body(node, walk, sizes=False) or self._call_body(node, walk, sizes=True)
        if body is None:
            raise UnsupportedOperator(f"operator {node.op_type} is not supported with these operands")
        formals = len(body.graph.input)
        outer = _captured(node, body.graph)
        body.graph.input.extend(ValueInfoProto(name=v.name) for v in outer)
        graph = ir.serde.deserialize_graph(body.graph)
        actuals = [*node.inputs, *[None] * (formals - len(node.inputs)), *outer]
        made = {v.name: v for v in graph.outputs}
        wanted = [made.get(name) for name in body.outputs[: build.output_count]]
        _drop_unread(graph, [v for v in wanted if v is not None])
        for formal, actual in zip(list(graph.inputs), actuals):
            for use in list(formal.uses()):
                use.node.replace_input_with(use.idx, actual)
        stand_ins: dict[ir.Value, ir.Value | None] = dict(zip(graph.inputs, actuals))
        graph.outputs.clear()
        for inner in list(graph):
            graph.remove(inner)
            for old, new in zip(list(inner.outputs), self._placed(inner, walk, build)):
                stand_ins[old] = new
        return [None if v is None else stand_ins.get(v, v) for v in wanted]

    def _call_body(self, node: ir.Node, walk: Rewritable, sizes: bool) -> Body | None:
        """Few bodies depend on sizes, and in the body of a loop they are others later."""
        types = [None if v is None else _type(walk.result.operand(v), sizes) for v in node.inputs]
        return call_body(node, types, self.model.opset_imports)

    def _placed(self, node: ir.Node, walk: Rewritable, build: Expansion) -> Sequence[ir.Value]:
        if _is_constant(node):
            return [_hoisted(node, build)]
        for _, inner in subgraphs_of(node):
            self._own_names(inner, build)
        build.place(node)
        return self._settle(node, walk)

    def _own_names(self, graph: ir.Graph, build: Expansion) -> None:
        """Of a subgraph of a body; its constants move to the main graph."""
        original = build.node
        for inner in graphs_within(graph):
            for value in inner.inputs:
                value.name = self.namer.value(value.name or "value")
            for node in list(inner):
                if _is_constant(node):
                    _hoist_within(node, inner, build)
                    continue
                node.name = self.namer.node(f"{original.name}/{node.name or node.op_type}")
                inherit([node], [original])
                for value in node.outputs:
                    if value.name != "":
                        value.name = self.namer.value(value.name or "value")

    # Putting it in place -------------------------------------------------------------------------

    def _replace(
        self, node: ir.Node, results: Sequence[ir.Value | None], walk: Rewritable
    ) -> Sequence[ir.Value]:
        graph = node.graph
        assert graph is not None
        stand_ins: list[ir.Value] = []
        for old, new in zip(list(node.outputs), results):
            if new is None or not (old.uses() or old.is_graph_output() or self._depth):
                stand_ins.append(old if new is None else new)
                continue
            if not can_replace(old, new):
                new = self._copy(node, new, walk)
            self._take_name(old, new, node)
            replace_value(old, new)
            stand_ins.append(new)
        graph.remove(node, safe=True)
        return stand_ins

    def _copy(self, node: ir.Node, value: ir.Value, walk: Rewritable) -> ir.Value:
        copy = ir.node("Identity", [value], name=self.namer.node(f"{node.name}/copy"))
        copy.outputs[0].name = self.namer.value(f"{value.name}/copy")
        assert node.graph is not None
        node.graph.insert_before(node, copy)
        inherit([copy], [node])
        walk.node(copy)
        return copy.outputs[0]

    def _take_name(self, old: ir.Value, new: ir.Value, node: ir.Node) -> None:
        """A value that the expansion made is called as the source model calls it."""
        maker = new.producer()
        own = maker is not None and (maker.name or "").startswith(f"{node.name}/")
        if own and not old.is_graph_output() and not new.is_graph_output() and old.name:
            name, old.name = old.name, self.namer.value(f"{old.name}.replaced")
            new.name = name


def _expanded(function: Callable[..., Any], node: ir.Node, build: Expansion) -> Sequence[ir.Value | None]:
    attributes = attributes_of(node)
    check_call(function, node, len(node.inputs), attributes)
    made = function(build, *node.inputs, **attributes)
    return [made] if isinstance(made, ir.Value) else list(made)


def _type(known: Known, sizes: bool) -> TypeProto:
    proto = TypeProto()
    proto.tensor_type.elem_type = ir_dtype(known.dtype).value
    for dim in known.shape:
        entry = proto.tensor_type.shape.dim.add()
        if sizes and dim.is_static:
            entry.dim_value = dim.value
    return proto


def _drop_unread(graph: ir.Graph, wanted: Sequence[ir.Value]) -> None:
    graph.outputs[:] = list(wanted)
    for node in reversed(list(graph)):
        if not any(v.uses() or v.is_graph_output() for v in node.outputs):
            graph.remove(node, safe=True)


def _captured(node: ir.Node, body: GraphProto) -> list[ir.Value]:
    """What the node's own subgraphs read from around it: a body that takes them in reads it too."""
    found = list(dict.fromkeys(v for _, inner in subgraphs_of(node) for v in captures(inner)))
    own = {name for inner in body.node for name in inner.output} | {v.name for v in body.input}
    clash = sorted(v.name or "" for v in found if v.name in own)
    if clash:
        raise NotYet(f"{node.op_type} whose subgraph reads '{clash[0]}', a name of its definition")
    return found


def _is_constant(node: ir.Node) -> bool:
    return (node.domain, node.op_type) == ("", "Constant")


def _hoisted(node: ir.Node, build: Expansion) -> ir.Value:
    constant = build.constant(_constant_tensor(node), node.outputs[0].name or "constant")
    node.outputs[0].replace_all_uses_with(constant)
    return constant


def _hoist_within(node: ir.Node, graph: ir.Graph, build: Expansion) -> None:
    """An output of a subgraph has to be made there."""
    old = node.outputs[0]
    constant = build.constant(_constant_tensor(node), old.name or "constant")
    if old.is_graph_output():
        copy = ir.node("Identity", [constant], name=f"{build.node.name}/{old.name}")
        copy.outputs[0].name = f"{constant.name}.copy"
        inherit([copy], [build.node])
        graph.insert_before(node, copy)
        old.replace_all_uses_with(copy.outputs[0], replace_graph_outputs=True)
    else:
        old.replace_all_uses_with(constant)
    graph.remove(node, safe=True)


def _constant_tensor(node: ir.Node) -> ir.TensorProtocol:
    """The value of a Constant node, in any spelling that a schema uses."""
    for name, attribute in node.attributes.items():
        if name == "value":
            return ir.Tensor(attribute.as_tensor().numpy().copy(), dtype=attribute.as_tensor().dtype)
        if name in ("value_int", "value_ints"):
            return ir.tensor(attribute.value, dtype=ir.DataType.INT64)
        if name in ("value_float", "value_floats"):
            return ir.tensor(attribute.value, dtype=ir.DataType.FLOAT)
    raise InvalidModel("a Constant without a dense value")


PASS = GraphPass("expand-operators", run)
