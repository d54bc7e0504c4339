"""BatchNormalization with given statistics or those of the batch, and InstanceNormalization."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import InvalidModel, ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import reindex
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.reduce import mean
from cuvil_build.ops.scalar import add, cast, div, mul, sqrt, sub
from cuvil_build.ops.shapes import FLOATS


def infer(
    ctx: InferContext,
    x: Known,
    scale: Known,
    bias: Known,
    centre: Known,
    variance: Known,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> tuple[Known, ...]:
    if x.rank < 2:
        raise ShapeMismatch(f"BatchNormalization needs batch and channels, the input has rank {x.rank}")
    if ctx.output_count > 1 and not training_mode:
        raise InvalidModel("BatchNormalization has running statistics as outputs only in training mode")
    for known in (scale, bias, centre, variance):
        ctx.require_equal(known.shape[0], x.shape[1], "channels of BatchNormalization")
    result = Known(x.dtype, x.shape)
    running = [Known(known.dtype, known.shape) for known in (centre, variance)]
    return (result, *running)[: max(ctx.output_count, 1)]


def lower(
    build: NestBuilder,
    x: View,
    scale: View,
    bias: View,
    centre: View,
    variance: View,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> View | tuple[View, View, View]:
    def normal(e: Expr, s: Expr, b: Expr, c: Expr, v: Expr) -> Expr:
        s, b, c, v = (cast(value, e.dtype) for value in (s, b, c, v))
        return add(mul(sub(e, c), div(s, sqrt(add(v, epsilon)))), b)

    def normalized(c: View, v: View) -> View:
        return build.map(normal, x, *(per_channel(value, x) for value in (scale, bias, c, v)))

    if not training_mode:
        return normalized(centre, variance)
    batch_centre, batch_variance = _statistics(build, x)

    def running(old: Expr, new: Expr) -> Expr:
        return add(mul(old, momentum), mul(cast(new, old.dtype), 1.0 - momentum))

    return (
        normalized(batch_centre, batch_variance),
        build.map(running, centre, batch_centre),
        build.map(running, variance, batch_variance),
    )


def _statistics(build: NestBuilder, x: View) -> tuple[View, View]:
    """Mean and variance of the batch, per channel."""
    axes = [axis for axis in range(x.rank) if axis != 1]
    x = build.settle(x)
    centre = build.materialise(mean(build, x, axes))
    squares = build.map(lambda e, c: mul(sub(e, c), sub(e, c)), x, centre)
    variance = build.materialise(mean(build, squares, axes))
    return _vector(centre), _vector(variance)


def _vector(values: View) -> View:
    """One element per channel, without the axes of size 1 beside it."""
    rest = (ZERO,) * (values.rank - 2)
    return reindex(values, (values.shape[1],), lambda index: (ZERO, index[0], *rest))


def per_channel(values: View, x: View) -> View:
    """A vector with one element per channel (axis 1) of `x`, spread over its shape."""
    return reindex(values, x.shape, lambda index: (index[1],))


def infer_instance(ctx: InferContext, x: Known, scale: Known, bias: Known, *, epsilon: float = 1e-5) -> Known:
    for known in (scale, bias):
        ctx.require_equal(known.shape[0], x.shape[1], "channels of InstanceNormalization")
    return Known(x.dtype, x.shape)


def lower_instance(build: NestBuilder, x: View, scale: View, bias: View, *, epsilon: float = 1e-5) -> View:
    axes = list(range(2, x.rank))
    x = build.keep(build.settle(x), axes)
    gap = build.keep(build.map("sub", x, mean(build, x, axes)), axes)
    variance = mean(build, build.map(lambda e: mul(e, e), gap), axes)
    factor = build.map(lambda v, s: div(s, sqrt(add(v, epsilon))), variance, _column(scale, x))
    return build.map(lambda g, f, b: add(mul(g, f), b), gap, factor, per_channel(bias, x))


def _column(values: View, x: View) -> View:
    """One element per channel, with axes of size 1 beside it."""
    shape = [x.shape[1] if d == 1 else extent for d, extent in enumerate(_ones(x.rank))]
    return reindex(values, shape, lambda index: (index[1],))


def _ones(rank: int) -> list[IntExpr]:
    return [ONE] * rank


OPS = (
    Operator("BatchNormalization", infer, lower, dtypes=FLOATS),
    Operator("InstanceNormalization", infer_instance, lower_instance, kind="reduce", dtypes=FLOATS),
)
