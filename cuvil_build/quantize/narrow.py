"""Stores activations in 16-bit floats: whole nodes of float16, or float32 nodes between two casts."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from cuvil_build.cuir.opset import OPSET
from cuvil_build.quantize.edit import Edit
from cuvil_build.quantize.numbers import beyond
from cuvil_build.quantize.products import is_constant, product_of
from cuvil_build.quantize.scheme import NARROW_FLOATS, NodePolicy
from cuvil_build.quantize.weights import FLOAT_TYPES, narrow_constant

FLOAT = ir.DataType.FLOAT
STORED = ".stored"
"""Ends the name of a value that is narrow now: the plain name is that of its wide twin."""
KEPT = frozenset("Cast CastLike DequantizeLinear DynamicQuantizeLinear QuantizeLinear".split())
"""What converts says itself of which dtype its results are."""


def store_activations(edit: Edit, policies: Mapping[ir.Node, NodePolicy]) -> list[str]:
    """Names of the values that are 16-bit floats in memory now. Inputs and outputs of the graph stay."""
    narrow: dict[ir.Value, ir.Value] = {}
    names: list[str] = []
    for node in list(edit.model.graph):
        policy = policies.get(node)
        if policy is None or policy.activations not in NARROW_FLOATS or node.op_type in KEPT:
            continue
        kind = FLOAT_TYPES[policy.activations]
        if policy.activations == "float16" and _is_native(node, policy):
            for position in _typed(node):
                value = node.inputs[position]
                assert value is not None
                node.replace_input_with(position, _narrowed(edit, value, node, policy.activations, narrow))
            for result in node.outputs:
                if result.dtype == FLOAT and _same_type(node, result):
                    names.append(str(result.name))
                    _widen_behind(edit, node, result, kind, narrow)
        else:
            for result in node.outputs:
                if result.dtype == FLOAT and not result.is_graph_output():
                    names.append(str(result.name))
                    _round_behind(edit, node, result, kind, narrow)
    _drop_unread(edit.model)
    return names


def _schema(node: ir.Node) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(node.op_type, OPSET, "" if node.domain == "ai.onnx" else node.domain)
    except onnx.defs.SchemaError:
        return None


def _is_native(node: ir.Node, policy: NodePolicy) -> bool:
    """Whether the operator exists in float16, and none of its weights must stay float32."""
    schema = _schema(node)
    kinds = {attribute.type for attribute in node.attributes.values()}
    if schema is None or kinds & {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}:
        return False
    typed = _typed(node)
    if not typed:
        return False
    formal = schema.outputs[0].type_str
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}.get(formal, set())
    if "tensor(float16)" not in allowed:
        return False
    product = product_of(node)
    if product is not None and beyond(product.array, "float16"):
        return False
    wide = [node.inputs[i] for i in typed]
    return policy.weights.type != "float32" or not any(
        is_constant(v) and v is not None and v.shape is not None and len(v.shape) > 1 for v in wide
    )


def _typed(node: ir.Node) -> list[int]:
    """Positions of float32 operands that have the dtype of the first result."""
    schema = _schema(node)
    if schema is None or node.outputs[0].dtype != FLOAT:
        return []
    formal = schema.outputs[0].type_str
    return [
        i
        for i, value in enumerate(node.inputs)
        if value is not None
        and _dtype(value) == FLOAT
        and schema.inputs[min(i, len(schema.inputs) - 1)].type_str == formal
    ]


def _dtype(value: ir.Value) -> ir.DataType | None:
    return value.const_value.dtype if value.const_value is not None else value.dtype


def _same_type(node: ir.Node, result: ir.Value) -> bool:
    schema = _schema(node)
    assert schema is not None
    index = list(node.outputs).index(result)
    return bool(schema.outputs[min(index, len(schema.outputs) - 1)].type_str == schema.outputs[0].type_str)


def _narrowed(
    edit: Edit, value: ir.Value, node: ir.Node, dtype: str, narrow: dict[ir.Value, ir.Value]
) -> ir.Value:
    """The value in 16 bits; what was just widened is not converted twice."""
    kind = FLOAT_TYPES[dtype]
    found = narrow.get(value)
    if found is not None and found.dtype == kind:
        return found
    if is_constant(value):
        return narrow_constant(edit, value, dtype)
    maker = value.producer()
    if maker is not None and maker.op_type == "Cast":
        inner = maker.inputs[0]
        if inner is not None and _dtype(inner) == kind:
            return inner
    if maker is not None and maker.op_type == "Reshape":
        inner = maker.inputs[0]
        cast = None if inner is None else inner.producer()
        if (
            cast is not None
            and cast.op_type == "Cast"
            and cast.inputs[0] is not None
            and _dtype(cast.inputs[0]) == kind
        ):
            return edit.one("Reshape", [cast.inputs[0], maker.inputs[1]], f"{value.name}.{dtype}", node)
    base = f"{value.name}.{dtype}"
    made = edit.one("Cast", [value], base, node, attributes={"to": kind.value})
    made.dtype = kind
    if maker is not None or value.is_graph_input():
        # moved to right behind the maker, so that all readers find it
        cast_node = made.producer()
        assert cast_node is not None and cast_node.graph is not None
        if maker is not None and maker.graph is cast_node.graph:
            cast_node.graph.remove(cast_node)
            edit.model.graph.insert_after(maker, [cast_node])
            narrow[value] = made
        elif maker is None:
            cast_node.graph.remove(cast_node)
            first = next(iter(edit.model.graph))
            edit.model.graph.insert_before(first, [cast_node])
            narrow[value] = made
    return made


def _widen_behind(
    edit: Edit, node: ir.Node, result: ir.Value, kind: ir.DataType, narrow: dict[ir.Value, ir.Value]
) -> None:
    """The result is narrow; who wants float32 reads a cast of it, under the old name."""
    wide = edit.one("Cast", [result], "wide", node, after=True, attributes={"to": FLOAT.value})
    _swap(result, wide)
    result.type = ir.TensorType(kind)
    narrow[wide] = result


def _round_behind(
    edit: Edit, node: ir.Node, result: ir.Value, kind: ir.DataType, narrow: dict[ir.Value, ir.Value]
) -> None:
    """The node stays float32; what it makes lies in memory in 16 bits."""
    low = edit.one("Cast", [result], f"{result.name}.narrow", node, after=True, attributes={"to": kind.value})
    low.dtype = kind
    cast = low.producer()
    assert cast is not None
    wide = edit.one("Cast", [low], "wide", cast, after=True, attributes={"to": FLOAT.value})
    _swap(result, wide, keep=cast)
    narrow[wide] = low


def _swap(old: ir.Value, wide: ir.Value, keep: ir.Node | None = None) -> None:
    """Readers of `old` read `wide`, which gets its name; its own cast goes on reading `old`."""
    maker = wide.producer()
    assert maker is not None
    name = old.name
    old.name, wide.name = f"{name}{STORED}", name
    wide.type, wide.shape = ir.TensorType(FLOAT), old.shape
    old.replace_all_uses_with(wide, replace_graph_outputs=True)
    (keep or maker).replace_input_with(0, old)


def _drop_unread(model: ir.Model) -> None:
    for node in reversed(list(model.graph)):
        if node.op_type in ("Cast", "Reshape") and not any(
            v.uses() or v.is_graph_output() for v in node.outputs
        ):
            model.graph.remove(node, safe=True)
    for name, value in list(model.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del model.graph.initializers[name]
