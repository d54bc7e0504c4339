"""QuantizeLinear: per tensor, per axis or in blocks, to integers and to small floats."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import DTYPES, DType
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.ops.cast import convert, dtype_of_code
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.quantization import check_parameter, divided, quantized, spread
from cuvil_build.ops.shapes import require_attribute

SOURCES = ("float32", "float16", "bfloat16", "int32")


def infer(
    ctx: InferContext,
    x: Known,
    scale: Known,
    zero_point: Known | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Known:
    require_attribute(precision in (0, 1), f"precision={precision}")
    check_parameter(ctx, x, scale, axis, block_size, "the scale of QuantizeLinear")
    check_parameter(ctx, x, zero_point, axis, block_size, "the zero point of QuantizeLinear")
    return Known(_dtype(None if zero_point is None else zero_point.dtype, output_dtype), x.shape)


def lower(
    build: NestBuilder,
    x: View,
    scale: View,
    zero_point: View | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> View:
    dtype = build.result_dtypes[0]
    wide = spread(scale, x.shape, axis, block_size)
    zeros = None if zero_point is None else spread(zero_point, x.shape, axis, block_size)

    def element(index: Index) -> Expr:
        value = divided(x.at(index), wide.at(index))
        return quantized(value, None if zeros is None else zeros.at(index), dtype)

    if dtype.is_float:
        ratio = build.map(divided, x, wide)
        return convert(build, ratio, dtype, bool(saturate), "up")
    return build.compute(x.shape, dtype.carrier, element)


def _dtype(zero_point: DType | None, code: int) -> DType:
    if zero_point is not None:
        return zero_point
    return dtype_of_code(code) if code else DTYPES["uint8"]


OP = Operator("QuantizeLinear", infer, lower, dtypes=SOURCES)
