"""Products of 8-bit operands whose result is float: with given scales, or quantized on the way."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.dtypes import FLOAT32
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand(
    build: Expansion,
    a: ir.Value,
    b: ir.Value,
    a_scale: ir.Value,
    b_scale: ir.Value,
    a_zero_point: ir.Value | None = None,
    b_zero_point: ir.Value | None = None,
    bias: ir.Value | None = None,
) -> ir.Value:
    product = build.op("MatMulInteger", a, b, a_zero_point, b_zero_point)
    result = build.mul(build.cast(product, FLOAT32), build.mul(a_scale, b_scale))
    return result if bias is None else build.add(result, bias)


def expand_dynamic(
    build: Expansion,
    a: ir.Value,
    b: ir.Value,
    b_scale: ir.Value,
    b_zero_point: ir.Value | None = None,
    bias: ir.Value | None = None,
) -> ir.Value:
    codes, scale, zero_point = build.ops("DynamicQuantizeLinear", a, outputs=3)
    return expand(build, codes, b, scale, b_scale, zero_point, b_zero_point, bias)


OPS = (
    Operator("DynamicQuantizeMatMul", expand=expand_dynamic, domain="com.microsoft"),
    Operator("MatMulIntegerToFloat", expand=expand, domain="com.microsoft"),
)
