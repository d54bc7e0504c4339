"""Integer products as onnxruntime computes them exactly: with unsigned weights.

On x86 without VNNI, onnxruntime adds pairs of uint8 × int8 products in 16 bits, which saturate: its sums are
wrong by many quanta. With uint8 on both sides they are exact. A weight and its zero point that both grow by
128 leave the result as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import all_graphs, graphs_within

OFFSET = 128
WEIGHTS: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {
    ("", "ConvInteger"): ((1, 3),),
    ("", "MatMulInteger"): ((1, 3),),
    ("", "QLinearConv"): ((3, 5),),
    ("", "QLinearMatMul"): ((3, 5),),
    ("com.microsoft", "DynamicQuantizeLSTM"): ((1, 9), (2, 11)),
    ("com.microsoft", "DynamicQuantizeMatMul"): ((1, 3),),
    ("com.microsoft", "MatMulIntegerToFloat"): ((1, 5),),
    ("com.microsoft", "QAttention"): ((1, 7),),
    ("com.microsoft", "QGemm"): ((3, 5),),
}
"""Positions of weights and their zero points."""


def with_unsigned_weights(model: ir.Model) -> ir.Model:
    """The model itself where nothing has to change, else a changed copy; names of values stay."""
    if not any(_signed(node) for graph in all_graphs(model) for node in graph):
        return model
    copy: ir.Model = model.clone()
    shifted = _Shifted(copy)
    for graph in list(all_graphs(copy)):
        for node in list(graph):
            for weight, zero_point in _signed(node):
                shifted.operands(node, weight, zero_point)
    for name, value in list(copy.graph.initializers.items()):
        if value in shifted.made and not value.uses() and not value.is_graph_output():
            del copy.graph.initializers[name]
    return copy


def _signed(node: ir.Node) -> list[tuple[int, int]]:
    """The pairs whose weight is known to be int8."""
    pairs = WEIGHTS.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type), ())
    return [(w, z) for w, z in pairs if w < len(node.inputs) and _is_int8(node.inputs[w])]


def _is_int8(value: ir.Value | None) -> bool:
    if value is None:
        return False
    dtype = value.const_value.dtype if value.const_value is not None else value.dtype
    return bool(dtype == ir.DataType.INT8)


class _Shifted:
    """Values plus 128, each made once."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.namer = Namer(model)
        self.main = set(graphs_within(model.graph))
        self.made: dict[ir.Value, ir.Value] = {}

    def operands(self, node: ir.Node, weight: int, zero_point: int) -> None:
        given = node.inputs[zero_point] if zero_point < len(node.inputs) else None
        if zero_point >= len(node.inputs):
            node.resize_inputs(zero_point + 1)
        base = self.constant(np.array(OFFSET, np.uint8), node) if given is None else self.of(given, node)
        node.replace_input_with(zero_point, base)
        operand = node.inputs[weight]
        assert operand is not None
        node.replace_input_with(weight, self.of(operand, node))

    def of(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        if value.const_value is not None:
            if value not in self.made:
                flipped = value.const_value.numpy().view(np.uint8) ^ np.uint8(OFFSET)
                self.made[value] = self.initializer(flipped)
            return self.made[value]
        graph = reader.graph
        assert graph is not None
        wide = ir.node("Cast", [value], {"to": ir.DataType.INT32.value}, name=self.namer.node("wide"))
        offset = self.constant(np.array(OFFSET, np.int32), reader)
        moved = ir.node("Add", [wide.outputs[0], offset], name=self.namer.node("moved"))
        narrow = ir.node(
            "Cast", [moved.outputs[0]], {"to": ir.DataType.UINT8.value}, name=self.namer.node("narrow")
        )
        for node in (wide, moved, narrow):
            node.outputs[0].name = self.namer.value(f"{value.name}.{node.name}")
        graph.insert_before(reader, [wide, moved, narrow])
        return narrow.outputs[0]

    def constant(self, array: np.ndarray[Any, Any], reader: ir.Node) -> ir.Value:
        """A number for a node; functions see no initializers."""
        if reader.graph in self.main:
            return self.initializer(array)
        name = self.namer.value("unsigned")
        node = ir.node(
            "Constant", [], {"value": ir.Tensor(array, name=name)}, name=self.namer.node("unsigned")
        )
        node.outputs[0].name = name
        assert reader.graph is not None
        reader.graph.insert_before(reader, [node])
        return node.outputs[0]

    def initializer(self, array: np.ndarray[Any, Any]) -> ir.Value:
        name = self.namer.value("unsigned")
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=name)
        value = ir.Value(
            name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
        )
        self.model.graph.register_initializer(value)
        return value
