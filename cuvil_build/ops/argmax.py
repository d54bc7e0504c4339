"""ArgMax and ArgMin along an axis."""

from __future__ import annotations

from collections.abc import Callable

from cuvil_build.cuir.dtypes import INT32, INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import integer, reindex
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, cast, select
from cuvil_build.ops.shapes import NUMBERS, normal_axis


def infer(
    ctx: InferContext, x: Known, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Known:
    along = normal_axis(axis, x.rank)
    kept = (ONE,) if keepdims else ()
    return Known(INT64, (*x.shape[:along], *kept, *x.shape[along + 1 :]))


def _lower(kind: str) -> Callable[..., View]:
    def lower(
        build: NestBuilder, x: View, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> View:
        along = normal_axis(axis, x.rank)
        found = first_extreme(build, kind, x, along, last=bool(select_last_index))
        return found if keepdims else _dropped(found, along)

    return lower


def first_extreme(build: NestBuilder, kind: str, x: View, along: int, *, last: bool = False) -> View:
    """The position of the first maximum or minimum along an axis, or of the last one."""
    x = build.settle(x)
    extreme = build.reduce(kind, x, [along])
    extent = x.shape[along]
    # positions as short as they can be: as many of them in a vector as of the elements
    dtype = INT32 if extent.is_static and extent.value < 2**31 else INT64

    def body(index: Index, loops: Index) -> Expr:
        element = x.at((*index[:along], *loops, *index[along + 1 :]))
        position = integer(loops[0], dtype)
        missing = -1 if last else integer(extent, dtype)
        return select(call("eq", element, extreme.at(index)), position, missing)

    found = build.reduce_over("max" if last else "min", extreme.shape, [extent], body, dtype, anchor="reduce")
    if dtype == INT64:
        return found
    return build.compute(found.shape, INT64, lambda index: cast(found.at(index), INT64))


def _dropped(view: View, axis: int) -> View:
    shape: list[IntExpr] = [*view.shape[:axis], *view.shape[axis + 1 :]]
    return reindex(view, shape, lambda index: (*index[:axis], ZERO, *index[axis:]))


OPS = (
    Operator("ArgMax", infer, _lower("max"), kind="reduce", dtypes=NUMBERS),
    Operator("ArgMin", infer, _lower("min"), kind="reduce", dtypes=NUMBERS),
)
