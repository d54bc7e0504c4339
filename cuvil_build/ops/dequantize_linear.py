"""DequantizeLinear: per tensor, per axis or in blocks."""

from __future__ import annotations

from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.ops.cast import dtype_of_code
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.quantization import check_parameter, dequantized, spread
from cuvil_build.ops.scalar import cast
from cuvil_build.ops.shapes import ANY


def infer(
    ctx: InferContext,
    x: Known,
    scale: Known,
    zero_point: Known | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Known:
    check_parameter(ctx, x, scale, axis, block_size, "the scale of DequantizeLinear")
    check_parameter(ctx, x, zero_point, axis, block_size, "the zero point of DequantizeLinear")
    return Known(dtype_of_code(output_dtype) if output_dtype else scale.dtype, x.shape)


def lower(
    build: NestBuilder,
    x: View,
    scale: View,
    zero_point: View | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> View:
    dtype = build.results[0][0]
    wide = spread(scale, x.shape, axis, block_size)
    zeros = None if zero_point is None else spread(zero_point, x.shape, axis, block_size)

    def element(index: Index) -> Expr:
        value = dequantized(x.at(index), wide.at(index), None if zeros is None else zeros.at(index))
        return cast(value, dtype)

    return build.compute(x.shape, dtype, element)


OP = Operator("DequantizeLinear", infer, lower, dtypes=ANY)
