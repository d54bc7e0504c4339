"""DynamicQuantizeLinear: uint8 with the scale and zero point of the tensor's own range."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import FLOAT32, UINT8
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Cast, Const, Expr
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.quantization import divided, quantized
from cuvil_build.ops.scalar import call, div, maximum, minimum, select, sub

LARGEST = 255.0


def infer(ctx: InferContext, x: Known) -> tuple[Known, ...]:
    return Known(UINT8, x.shape), Known(FLOAT32, ()), Known(UINT8, ())


def lower(build: NestBuilder, x: View) -> tuple[View, View, View]:
    return self_quantized(build, build.operand(x))


def self_quantized(build: NestBuilder, x: View) -> tuple[View, View, View]:
    """The tensor's codes, and the scale and zero point of its range, which takes in zero."""
    axes = list(range(x.rank))
    low = build.map(lambda e: minimum(e, 0.0), build.reduce("min", x, axes, keepdims=False))
    high = build.map(lambda e: maximum(e, 0.0), build.reduce("max", x, axes, keepdims=False))
    scale = build.materialise(build.map(range_scale, low, high))
    zero_point = build.materialise(build.map(range_zero_point, low, scale))
    codes = build.map(lambda e, s, z: quantized(divided(e, s), z, UINT8), x, scale, zero_point)
    return codes, scale, zero_point


def range_scale(low: Expr, high: Expr) -> Expr:
    """1 where the range is empty: any scale maps zero to zero."""
    return select(call("eq", low, high), Const(1.0, FLOAT32), div(sub(high, low), LARGEST))


def range_zero_point(low: Expr, scale: Expr) -> Expr:
    exact = sub(0.0, div(low, scale))
    return Cast(call("rint", minimum(maximum(exact, 0.0), LARGEST)), UINT8)


OP = Operator("DynamicQuantizeLinear", infer, lower, kind="reduce")
