"""ConvInteger: the convolution of 8-bit operands, exact in int32."""

from __future__ import annotations

from typing import Any

from cuvil_build.cuir.dtypes import INT32
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.ops.conv import convolution, infer_convolution
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.quantization import centred, is_per_tensor
from cuvil_build.ops.scalar import cast, mul
from cuvil_build.ops.windows import WindowAttributes


def infer(
    ctx: InferContext,
    x: Known,
    w: Known,
    x_zero_point: Known | None = None,
    w_zero_point: Known | None = None,
    *,
    group: int = 1,
    **attributes: Any,
) -> Known:
    if w_zero_point is not None and not is_per_tensor(w_zero_point.shape):
        ctx.require_equal(w_zero_point.shape[0], w.shape[0], "the zero points of ConvInteger's weights")
    return Known(INT32, infer_convolution(ctx, x, w, group, attributes))


def lower(
    build: NestBuilder,
    x: View,
    w: View,
    x_zero_point: View | None = None,
    w_zero_point: View | None = None,
    *,
    group: int = 1,
    **attributes: Any,
) -> View:
    """Padding is zero once the zero point is taken off."""
    moves = WindowAttributes.of(attributes)
    found = moves.windows(x.shape[2:], moves.of_weights(w.shape[2:]))
    left = centred(build, x, x_zero_point)
    right = centred(build, w, w_zero_point, axis=0)
    return convolution(build, left, right, found, group, build.results[0][1], INT32, _product)


def _product(left: Expr, right: Expr) -> Expr:
    return mul(cast(left, INT32), cast(right, INT32))


OP = Operator("ConvInteger", infer, lower, kind="window", dtypes=("int8", "uint8"))
