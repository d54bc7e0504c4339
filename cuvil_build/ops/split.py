"""Split along an axis, by sizes or into equal parts."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.cuir.int_expr import ZERO, IntExpr, ceil_divide
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import reindex
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, normal_axis, sizes


def infer(
    ctx: InferContext, x: Known, split: Known | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Known, ...]:
    along = normal_axis(axis, x.rank)
    lengths = _sizes(ctx, x.shape[along], split, num_outputs or ctx.output_count)
    if len(lengths) != ctx.output_count:
        raise ShapeMismatch(f"Split has {len(lengths)} sizes and {ctx.output_count} outputs")
    ctx.require_equal(sum(lengths, ZERO), x.shape[along], "sizes of Split")
    return tuple(Known(x.dtype, (*x.shape[:along], size, *x.shape[along + 1 :])) for size in lengths)


def lower(
    build: NestBuilder, x: View, split: View | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[View, ...]:
    along = normal_axis(axis, x.rank)
    start = ZERO
    parts: list[View] = []
    for _, shape in build.results:
        parts.append(_part(x, along, start, shape))
        start = start + shape[along]
    return tuple(parts)


def _part(x: View, axis: int, start: IntExpr, shape: Sequence[IntExpr]) -> View:
    return reindex(x, shape, lambda index: tuple(i + start if d == axis else i for d, i in enumerate(index)))


def _sizes(ctx: InferContext, extent: IntExpr, split: Known | None, count: int) -> list[IntExpr]:
    if split is not None:
        return sizes(ctx, split, "sizes of Split")
    each = ceil_divide(extent, count)
    last = extent - each * (count - 1)
    ctx.require_at_most(ZERO, last, "the last part of Split")
    return [each] * (count - 1) + [last]


OP = Operator("Split", infer, lower, kind="view", dtypes=ANY, shape_operands=(1,))
