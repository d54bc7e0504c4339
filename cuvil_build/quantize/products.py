"""Where products have their weights: which operand, the axis of the channels, and the axis of the sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

PASSING = frozenset("Flatten Identity MaxPool Reshape Slice Squeeze Transpose Unsqueeze".split())
"""What they make are numbers that they read: the same scale serves both."""
OF_BYTES = frozenset("Add AveragePool Concat GlobalAveragePool".split())
"""Worth to be computed of bytes, between products that are."""
ACTIVATIONS = frozenset(
    "Clip Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Sigmoid Softplus Swish Tanh".split()
)
"""Part of the kernel that makes their operand: nothing is quantised in between."""
SMALLEST = 16
"""Shorter sums in blocks save nothing."""


@dataclass(frozen=True, slots=True)
class Product:
    """A node whose weights are known at build time."""

    node: ir.Node
    weight: int
    """Position of the weights."""
    operand: int
    """Position of the activations."""
    channels: int | None
    """Axis of the weights whose indices are results of their own; None where there is no such axis."""
    sums: int
    """Axis of the weights that is summed over; of convolutions with the axes behind it."""

    @property
    def value(self) -> ir.Value:
        """The weights, until something else stands in their place."""
        found = self.node.inputs[self.weight]
        assert found is not None
        return found

    @property
    def array(self) -> np.ndarray:
        return constant(self.value)

    @property
    def bias(self) -> int | None:
        """Position of a constant bias."""
        if self.node.op_type not in ("Conv", "ConvTranspose", "Gemm") or len(self.node.inputs) < 3:
            return None
        return 2 if is_constant(self.node.inputs[2]) else None


def product_of(node: ir.Node) -> Product | None:
    """None for whatever is no product with constant float32 weights."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Conv" and is_weight(node.inputs[1]):
        return Product(node, 1, 0, 0, 1)
    if node.op_type == "ConvTranspose" and is_weight(node.inputs[1]):
        return Product(node, 1, 0, 1 if node.attributes.get_int("group", 1) == 1 else None, 0)
    if node.op_type == "Gemm" and is_weight(node.inputs[1]) and not is_constant(node.inputs[0]):
        transposed = node.attributes.get_int("transB", 0)
        return Product(node, 1, 0, 0 if transposed else 1, 1 if transposed else 0)
    if node.op_type == "MatMul":
        for weight in (1, 0):
            if is_weight(node.inputs[weight]) and not is_constant(node.inputs[1 - weight]):
                rank = constant(node.inputs[weight]).ndim
                axes = (rank - 1, rank - 2) if weight else (rank - 2, rank - 1)
                return Product(node, weight, 1 - weight, *axes) if rank > 1 else None
    return None


def is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and value.is_initializer()


def is_weight(value: ir.Value | None) -> bool:
    """A float32 constant with axes to speak of."""
    if value is None or not is_constant(value) or value.const_value is None:
        return False
    return value.const_value.dtype == ir.DataType.FLOAT and len(value.const_value.shape) > 1


def constant(value: ir.Value | None) -> np.ndarray:
    assert value is not None and value.const_value is not None
    return np.asarray(value.const_value.numpy())
