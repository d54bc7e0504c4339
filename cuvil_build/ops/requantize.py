"""Integer products that are scaled back to 8 bits: QLinearMatMul, QLinearConv, QGemm."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import FLOAT32
from cuvil_build.cuir.int_expr import ONE
from cuvil_build.errors import NotYet
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand_matmul(
    build: Expansion,
    a: ir.Value,
    a_scale: ir.Value,
    a_zero_point: ir.Value,
    b: ir.Value,
    b_scale: ir.Value,
    b_zero_point: ir.Value,
    y_scale: ir.Value,
    y_zero_point: ir.Value,
) -> ir.Value:
    product = build.op("MatMulInteger", a, b, a_zero_point, b_zero_point)
    rows = _as_column(build, a_scale)
    return _requantized(build, product, _factor(build, rows, b_scale, y_scale), y_zero_point)


def expand_conv(
    build: Expansion,
    x: ir.Value,
    x_scale: ir.Value,
    x_zero_point: ir.Value,
    w: ir.Value,
    w_scale: ir.Value,
    w_zero_point: ir.Value,
    y_scale: ir.Value,
    y_zero_point: ir.Value,
    bias: ir.Value | None = None,
    *,
    channels_last: int = 0,
    **attributes: Any,
) -> ir.Value:
    rank = build.rank(x)
    if channels_last:
        x = build.transpose(x, [0, rank - 1, *range(1, rank - 1)])
    # Most exporters write a zero for each channel, where onnxruntime's ConvInteger takes one number.
    shift = None if _is_zero(build, w_zero_point) else w_zero_point
    total = build.op("ConvInteger", x, w, x_zero_point, shift, **attributes)
    if bias is not None:
        total = build.add(total, _per_channel(build, bias, rank))
    scale = w_scale if _is_single(build, w_scale) else _per_channel(build, w_scale, rank)
    result = _requantized(build, total, _factor(build, x_scale, scale, y_scale), y_zero_point)
    return build.transpose(result, [0, *range(2, rank), 1]) if channels_last else result


def expand_gemm(
    build: Expansion,
    a: ir.Value,
    a_scale: ir.Value,
    a_zero_point: ir.Value,
    b: ir.Value,
    b_scale: ir.Value,
    b_zero_point: ir.Value,
    c: ir.Value | None = None,
    y_scale: ir.Value | None = None,
    y_zero_point: ir.Value | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> ir.Value:
    left = build.swap_last(a) if transA else a
    right = build.swap_last(b) if transB else b
    total = build.op("MatMulInteger", left, right, a_zero_point, b_zero_point)
    if c is not None:
        total = build.add(total, c)
    factor = build.mul(build.scaled(a_scale, alpha), b_scale)
    if y_scale is None:
        return build.mul(build.cast(total, FLOAT32), factor)
    if y_zero_point is None:
        raise NotYet("QGemm with the scale of its result and without a zero point")
    return _requantized(build, total, build.div(factor, y_scale), y_zero_point)


def _factor(build: Expansion, left: ir.Value, right: ir.Value, result: ir.Value) -> ir.Value:
    """One number, a row or a channel each: what an integer of the sum is worth in quanta of the result."""
    wide = [build.cast(v, FLOAT32) for v in (left, right, result)]
    return build.div(build.mul(wide[0], wide[1]), wide[2])


def _requantized(build: Expansion, total: ir.Value, factor: ir.Value, zero_point: ir.Value) -> ir.Value:
    scaled = build.mul(build.cast(total, FLOAT32), factor)
    if build.rank(zero_point):
        zero_point = build.reshape(zero_point)
    return build.op("QuantizeLinear", scaled, build.scalar(1.0, FLOAT32), zero_point)


def _is_single(build: Expansion, value: ir.Value) -> bool:
    return all(d == ONE for d in build.known(value).shape)


def _is_zero(build: Expansion, value: ir.Value) -> bool:
    constant = build.known(value).constant
    return constant is not None and not np.any(constant)


def _as_column(build: Expansion, scale: ir.Value) -> ir.Value:
    """One number a row."""
    if build.rank(scale) != 1 or _is_single(build, scale):
        return scale
    return build.unsqueeze(scale, 1)


def _per_channel(build: Expansion, value: ir.Value, rank: int) -> ir.Value:
    return build.reshape(value, -1, *[1] * (rank - 2))


OPS = (
    Operator("QGemm", expand=expand_gemm, domain="com.microsoft"),
    Operator("QLinearConv", expand=expand_conv),
    Operator("QLinearConv", expand=expand_conv, domain="com.microsoft"),
    Operator("QLinearMatMul", expand=expand_matmul),
)
