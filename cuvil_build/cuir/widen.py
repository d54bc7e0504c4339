"""Turns a float32 model into a float64 one, so that a second precision can decide which answer is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, defs, helper, inliner, numpy_helper, shape_inference

from cuvil_build.errors import NotYet

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
DTYPE_ATTRIBUTES = ("to", "dtype")


def widen_to_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that computes in float64; operators whose definition lacks float64 get casts around them."""
    flat = inliner.inline_local_functions(model) if model.functions else model
    typed = shape_inference.infer_shapes(flat)
    wide = onnx.ModelProto()
    wide.CopyFrom(typed)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    _Widener(versions).graph(wide.graph, {})
    return wide


class _Widener:
    def __init__(self, versions: Mapping[str, int]) -> None:
        self.versions = versions
        self.casts = 0

    def graph(self, graph: onnx.GraphProto, outer: Mapping[str, int]) -> None:
        """Widens in place; `outer` has the dtypes, before widening, of the values that a subgraph may see."""
        dtypes = dict(outer) | _dtypes(graph)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == FLOAT:
                value.type.tensor_type.elem_type = DOUBLE
        _replace(graph.initializer, [_widened(t) for t in graph.initializer])
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            nodes.extend(self.node(node, dtypes))
        _replace(graph.node, nodes)

    def node(self, node: onnx.NodeProto, dtypes: Mapping[str, int]) -> list[onnx.NodeProto]:
        for attribute in node.attribute:
            self.attribute(node, attribute, dtypes)
        schema = self.schema(node)
        before, after = [], []
        for i, name in enumerate(node.input):
            if name and dtypes.get(name) == FLOAT and _only_float(schema, schema.inputs, i):
                node.input[i] = self.fresh(name)
                before.append(helper.make_node("Cast", [name], [node.input[i]], to=FLOAT))
        for i, name in enumerate(node.output):
            if name and dtypes.get(name) == FLOAT and _only_float(schema, schema.outputs, i):
                node.output[i] = self.fresh(name)
                after.append(helper.make_node("Cast", [node.output[i]], [name], to=DOUBLE))
        return [*before, node, *after]

    def attribute(self, node: onnx.NodeProto, attribute: AttributeProto, dtypes: Mapping[str, int]) -> None:
        if attribute.type == AttributeProto.GRAPH:
            self.graph(attribute.g, dtypes)
        elif attribute.type == AttributeProto.TENSOR:
            attribute.t.CopyFrom(_widened(attribute.t))
        elif attribute.name in DTYPE_ATTRIBUTES and attribute.i == FLOAT:
            attribute.i = DOUBLE
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            value = helper.get_attribute_value(attribute)
            tensor = numpy_helper.from_array(np.asarray(value, np.float32).astype(np.float64))
            attribute.CopyFrom(helper.make_attribute("value", tensor))

    def schema(self, node: onnx.NodeProto) -> defs.OpSchema:
        domain = "" if node.domain == "ai.onnx" else node.domain
        try:
            return defs.get_schema(node.op_type, self.versions.get(domain, 1), domain)
        except defs.SchemaError as error:
            raise NotYet(f"a float64 evaluation of {domain or 'ai.onnx'}.{node.op_type}") from error

    def fresh(self, name: str) -> str:
        self.casts += 1
        return f"{name}.narrow_{self.casts}"


def _dtypes(graph: onnx.GraphProto) -> dict[str, int]:
    values = (*graph.input, *graph.output, *graph.value_info)
    known = {v.name: v.type.tensor_type.elem_type for v in values}
    return known | {t.name: t.data_type for t in graph.initializer}


def _widened(tensor: TensorProto) -> TensorProto:
    if tensor.data_type != FLOAT:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)


def _only_float(
    schema: defs.OpSchema, formals: Sequence[defs.OpSchema.FormalParameter], position: int
) -> bool:
    if not formals:
        return False
    formal = formals[min(position, len(formals) - 1)]
    constraints = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    allowed = constraints.get(formal.type_str, {formal.type_str})
    return "tensor(float)" in allowed and "tensor(double)" not in allowed


def _replace(field: Iterable[object], items: Sequence[object]) -> None:
    kept = list(items)
    del field[:]  # type: ignore[attr-defined]
    field.extend(kept)  # type: ignore[attr-defined]
