"""BatchNormalization as inference does it, and InstanceNormalization."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.errors import NotYet
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import reindex
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.reduce import mean
from cuvil_build.ops.scalar import add, div, mul, sqrt, sub
from cuvil_build.ops.shapes import require_attribute


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
) -> Known:
    require_attribute(training_mode == 0, f"training_mode={training_mode}", "export the model for inference")
    if ctx.output_count > 1:
        raise NotYet("the training outputs of BatchNormalization")
    for known in (scale, bias, centre, variance):
        ctx.require_equal(known.shape[0], x.shape[1], "channels of BatchNormalization")
    return Known(x.dtype, x.shape)


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
) -> View:
    def normal(e: Expr, s: Expr, b: Expr, c: Expr, v: Expr) -> Expr:
        return add(mul(sub(e, c), div(s, sqrt(add(v, epsilon)))), b)

    return build.map(normal, x, *(per_channel(v, x) for v in (scale, bias, centre, variance)))


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
    Operator("BatchNormalization", infer, lower),
    Operator("InstanceNormalization", infer_instance, lower_instance, kind="reduce"),
)
