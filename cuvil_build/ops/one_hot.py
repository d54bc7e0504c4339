"""OneHot: a new axis on which one element is on, the one that an index names."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import integer
from cuvil_build.ops.gather import wrapped
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, cast, select
from cuvil_build.ops.shapes import NUMBERS, normal_axis


def infer(ctx: InferContext, indices: Known, depth: Known, values: Known, *, axis: int = -1) -> Known:
    along = normal_axis(axis, indices.rank + 1)
    extent = _depth(ctx, depth)
    return Known(values.dtype, (*indices.shape[:along], extent, *indices.shape[along:]))


def _depth(ctx: InferContext, depth: Known) -> IntExpr:
    """Depth may be a float number."""
    if depth.constant is not None:
        number = int(depth.constant.reshape(-1)[0])
        if number < 0:
            raise ShapeMismatch(f"OneHot with a depth of {number}")
        return IntExpr.of(number)
    if depth.contents is not None:
        found = IntExpr.of(depth.contents.reshape(-1)[0])
        ctx.require_at_most(IntExpr.of(0), found, "depth of OneHot")
        return found
    return ctx.measured("depth", 0)


def measure(build: NestBuilder, indices: View, depth: View, values: View, *, axis: int = -1) -> View:
    first = (IntExpr.of(0),) * depth.rank
    return build.compute((), INT64, lambda index: cast(depth.at(first), INT64))


def lower(build: NestBuilder, indices: View, depth: View, values: View, *, axis: int = -1) -> View:
    """An index outside of -depth … depth-1 switches nothing on."""
    along = normal_axis(axis, indices.rank + 1)
    dtype, shape = build.results[0]
    indices = build.settle(indices)

    def at(index: Index) -> Expr:
        chosen = indices.at((*index[:along], *index[along + 1 :]))
        is_on = call("eq", wrapped(chosen, shape[along]), integer(index[along], INT64))
        return select(is_on, values.at((IntExpr.of(1),)), values.at((IntExpr.of(0),)))

    return build.compute(shape, dtype, at)


OP = Operator("OneHot", infer, lower, dtypes=NUMBERS, shape_operands=(1,), measure=measure)
