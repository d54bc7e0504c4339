"""Writes one ONNX graph, node by node; every parameter comes from one seeded generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8

Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = Sequence[int | str]


class GraphWriter:
    """Methods that add a node return the name of its output."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Shape, dtype: int = TensorProto.FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, name: str, shape: Shape) -> None:
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def node(self, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        name = f"/{op.lower()}_{len(self._nodes)}"
        result = to or name[1:]
        self._nodes.append(helper.make_node(op, list(inputs), [result], name, **attributes))
        return result

    def parameter(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"p{len(self._tensors)}"
        self._tensors[name] = numpy_helper.from_array(np.asarray(values, dtype, order="C"), name)
        return name

    def numbers(self, *values: int) -> str:
        return self.parameter(values, np.int64)

    def normal(self, *shape: int, spread: float = 1.0, mean: float = 0.0) -> str:
        return self.parameter(mean + spread * self.random.standard_normal(shape, np.float32))

    def conv(self, x: str, cin: int, cout: int, size: int, *, stride: int = 1, groups: int = 1) -> str:
        """Padded so that stride 1 keeps the size, without bias; He's initialisation."""
        fan_in = cin // groups * size * size
        weight = self.normal(cout, cin // groups, size, size, spread=math.sqrt(2 / fan_in))
        window: dict[str, Any] = {
            "kernel_shape": [size, size],
            "strides": [stride, stride],
            "pads": [size // 2] * 4,
        }
        return self.node("Conv", x, weight, group=groups, **window)

    def batch_norm(self, x: str, channels: int, *, gain: float = 1.0) -> str:
        """`gain` under 1 keeps the sum of many residual branches in range."""
        scale = self.normal(channels, spread=0.1 * gain, mean=gain)
        shift, mean = self.normal(channels, spread=0.1), self.normal(channels, spread=0.1)
        variance = self.parameter(1 + 0.1 * self.random.random(channels))
        return self.node("BatchNormalization", x, scale, shift, mean, variance, epsilon=1e-5)

    def gemm(self, x: str, cin: int, cout: int) -> str:
        weight = self.normal(cout, cin, spread=math.sqrt(1 / cin))
        return self.node("Gemm", x, weight, self.normal(cout, spread=0.02), transB=1)

    def linear(self, x: str, cin: int, cout: int) -> str:
        """As exporters write a linear layer on a tensor of rank 3."""
        product = self.node("MatMul", x, self.normal(cin, cout, spread=math.sqrt(1 / cin)))
        return self.node("Add", product, self.normal(cout, spread=0.02))

    def layer_norm(self, x: str, width: int) -> str:
        scale, shift = self.normal(width, spread=0.02, mean=1.0), self.normal(width, spread=0.02)
        return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)

    def gelu(self, x: str) -> str:
        """By Erf, spelled out as exporters do before opset 20."""
        erf = self.node("Erf", self.node("Div", x, self.parameter(math.sqrt(2))))
        gate = self.node("Add", erf, self.parameter(1.0))
        return self.node("Mul", self.node("Mul", x, gate), self.parameter(0.5))

    def model(self) -> onnx.ModelProto:
        tensors = list(self._tensors.values())
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, tensors)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
