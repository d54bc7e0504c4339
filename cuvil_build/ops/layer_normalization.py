"""LayerNormalization and RMSNormalization over the last axes."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import FLOAT32
from cuvil_build.cuir.int_expr import ONE
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.reduce import mean
from cuvil_build.ops.scalar import add, call, mul, sqrt
from cuvil_build.ops.shapes import FLOATS, broadcast_to, normal_axis, require_attribute


def infer(
    ctx: InferContext,
    x: Known,
    scale: Known,
    bias: Known | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Known, ...]:
    first = _check(ctx, x, scale, axis, stash_type)
    if bias is not None:
        broadcast_to(ctx, bias.shape, x.shape, "the bias of LayerNormalization")
    reduced = tuple(ONE if d >= first else extent for d, extent in enumerate(x.shape))
    statistic = Known(FLOAT32, reduced)
    return (Known(x.dtype, x.shape), statistic, statistic)[: max(ctx.output_count, 1)]


def lower(
    build: NestBuilder,
    x: View,
    scale: View,
    bias: View | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[View, View, View]:
    axes = list(range(normal_axis(axis, x.rank), x.rank))
    x = build.keep(build.settle(x), axes)
    centre = mean(build, x, axes)
    gap = build.keep(build.map("sub", x, centre), axes)
    inverse = _inverse_root(build, gap, axes, epsilon)
    result = build.map("mul", build.map("mul", gap, inverse), scale)
    result = result if bias is None else build.map("add", result, bias)
    # `stash_type` says the dtype of the statistics, whatever that of the input is
    return result, build.cast(centre, FLOAT32), build.cast(inverse, FLOAT32)


def infer_rms(
    ctx: InferContext, x: Known, scale: Known, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Known:
    _check(ctx, x, scale, axis, stash_type)
    return Known(x.dtype, x.shape)


def lower_rms(
    build: NestBuilder, x: View, scale: View, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> View:
    axes = list(range(normal_axis(axis, x.rank), x.rank))
    x = build.keep(build.settle(x), axes)
    inverse = _inverse_root(build, x, axes, epsilon)
    return build.map("mul", build.map("mul", x, inverse), scale)


def _check(ctx: InferContext, x: Known, scale: Known, axis: int, stash_type: int) -> int:
    require_attribute(stash_type == 1, f"stash_type={stash_type}")
    broadcast_to(ctx, scale.shape, x.shape, "the scale of a normalization")
    return normal_axis(axis, x.rank)


def _inverse_root(build: NestBuilder, x: View, axes: list[int], epsilon: float) -> View:
    """1 / sqrt(mean of squares + epsilon)."""
    variance = mean(build, build.map(lambda e: mul(e, e), x), axes)
    return build.map(lambda v: call("reciprocal", sqrt(add(v, epsilon))), variance)


OPS = (
    Operator("LayerNormalization", infer, lower, kind="reduce", dtypes=FLOATS),
    Operator("RMSNormalization", infer_rms, lower_rms, kind="reduce", dtypes=FLOATS),
)
