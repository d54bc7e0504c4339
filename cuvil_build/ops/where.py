"""Where: choose elements by a condition."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.contents import elementwise, is_true
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import broadcast, same_dtype


def infer(ctx: InferContext, condition: Known, x: Known, y: Known) -> Known:
    return Known(same_dtype(x, y), broadcast(ctx, [condition.shape, x.shape, y.shape]))


def lower(build: NestBuilder, condition: View, x: View, y: View) -> View:
    return build.select(condition, x, y)


def _choose(ctx: InferContext, condition: IntExpr, x: IntExpr, y: IntExpr) -> IntExpr | None:
    known = is_true(condition)
    if known is None:
        return x if ctx.is_equal(x, y) else None
    return x if known else y


OP = Operator("Where", infer, lower, dtypes=("bool",), evaluate=elementwise(_choose))
