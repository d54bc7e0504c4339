"""LpNormalization: elements divided by the norm along an axis."""

from __future__ import annotations

from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, div, mul, select, sqrt
from cuvil_build.ops.shapes import FLOATS, normal_axis, require_attribute


def infer(ctx: InferContext, x: Known, *, axis: int = -1, p: int = 2) -> Known:
    normal_axis(axis, x.rank)
    require_attribute(p in (1, 2), f"p={p}", "known: 1, 2")
    return Known(x.dtype, x.shape)


def lower(build: NestBuilder, x: View, *, axis: int = -1, p: int = 2) -> View:
    x = build.settle(x)
    if p == 1:
        norm = build.reduce("sum", build.map("abs", x), [axis])
    else:
        norm = build.map(sqrt, build.reduce("sum", build.map(lambda e: mul(e, e), x), [axis]))
    return build.map(_divided, x, norm)


def _divided(element: Expr, norm: Expr) -> Expr:
    """Where the norm is zero, so is every element, and the result."""
    return div(element, select(call("eq", norm, 0.0), add(norm, 1.0), norm))


OP = Operator("LpNormalization", infer, lower, kind="reduce", dtypes=FLOATS)
