"""MaxPool and AveragePool: the maximum or the mean of sliding windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuvil_build.cuir.dtypes import INT64, DType
from cuvil_build.cuir.int_expr import ZERO, IntExpr, ceil_divide, maximum, minimum, product
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import Condition, integer, within
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, div, mul, select
from cuvil_build.ops.shapes import FLOATS, NUMBERS
from cuvil_build.ops.windows import Window, require_room, windows


def infer_windows(ctx: InferContext, x: Known, kernel: Sequence[int], **attributes: Any) -> Known:
    found = windows(x.shape[2:], kernel, **attributes)
    require_room(ctx, found)
    return Known(x.dtype, (*x.shape[:2], *(v.output for v in found)))


def pool(build: NestBuilder, x: View, found: Sequence[Window], kind: str, neutral: int | float) -> View:
    """A reduction of every window; what lies in the padding counts as `neutral`."""
    outside = Const(neutral, x.dtype)

    def body(index: Index, loops: Index) -> Expr:
        at, conditions = _taken(found, index, loops)
        return within(conditions, x.at((*index[:2], *at)), outside)

    return build.reduce_over(kind, build.results[0][1], _taps(found), body, x.dtype, anchor="window")


def _taps(found: Sequence[Window]) -> list[IntExpr]:
    return [IntExpr.of(v.kernel) for v in found]


def _taken(found: Sequence[Window], index: Index, loops: Index) -> tuple[list[IntExpr], list[Condition]]:
    """Where in the input a tap lies, and when it does."""
    at = [v.position(out, tap) for v, out, tap in zip(found, index[2:], loops)]
    return at, [c for v, position in zip(found, at) for c in v.condition(position)]


# MaxPool -----------------------------------------------------------------------------------------


def infer_max(
    ctx: InferContext, x: Known, *, kernel_shape: list[int], storage_order: int = 0, **attributes: Any
) -> tuple[Known, ...]:
    values = infer_windows(ctx, x, kernel_shape, **attributes)
    return (values, Known(INT64, values.shape))[: ctx.output_count]


def lower_max(
    build: NestBuilder, x: View, *, kernel_shape: list[int], storage_order: int = 0, **attributes: Any
) -> View | tuple[View, View]:
    found = windows(x.shape[2:], kernel_shape, **attributes)
    x = build.operand(x)
    values = pool(build, x, found, "max", lowest(x.dtype))
    if len(build.results) == 1:
        return values
    values = build.materialise(values)
    return values, _indices(build, x, values, found, bool(storage_order))


def _indices(build: NestBuilder, x: View, values: View, found: Sequence[Window], column_major: bool) -> View:
    """The first position of each maximum, counted over the whole input."""
    missing = Const(int(np.iinfo(np.int64).max), INT64)

    def body(index: Index, loops: Index) -> Expr:
        at, conditions = _taken(found, index, loops)
        same = call("eq", x.at((*index[:2], *at)), values.at(index))
        return within(conditions, select(same, integer(_row_major(at, x.shape[2:]), INT64), missing), missing)

    first = build.reduce_over("min", values.shape, _taps(found), body, INT64, anchor="window")
    plane = product(x.shape[2:])

    def at(index: Index) -> Expr:
        inside = first.at(index)
        if column_major:
            inside = _transposed(inside, x.shape[2:])
        return add(inside, integer((index[0] * x.shape[1] + index[1]) * plane, INT64))

    return build.compute(values.shape, INT64, at)


def _row_major(at: Sequence[IntExpr], extents: Sequence[IntExpr]) -> IntExpr:
    flat = ZERO
    for position, extent in zip(at, extents):
        flat = flat * extent + position
    return flat


def _transposed(flat: Expr, extents: Sequence[IntExpr]) -> Expr:
    """A row-major position as one where the first axis is contiguous."""
    entries: list[Expr] = []
    for extent in reversed(extents):
        size = integer(extent, INT64)
        entries.append(call("fmod", flat, size))
        flat = call("div", flat, size)
    total: Expr = Const(0, INT64)
    for entry, extent in zip(entries, reversed(extents)):
        total = add(mul(total, integer(extent, INT64)), entry)
    return total


def lowest(dtype: DType) -> int | float:
    """The neutral element of a maximum."""
    if dtype.is_float:
        return -math.inf
    return 0 if dtype.kind == "bool" else int(np.iinfo(dtype.numpy).min)


# AveragePool -------------------------------------------------------------------------------------


def infer_average(
    ctx: InferContext, x: Known, *, kernel_shape: list[int], count_include_pad: int = 0, **attributes: Any
) -> Known:
    return infer_windows(ctx, x, kernel_shape, **attributes)


def lower_average(
    build: NestBuilder, x: View, *, kernel_shape: list[int], count_include_pad: int = 0, **attributes: Any
) -> View:
    found = windows(x.shape[2:], kernel_shape, **attributes)
    total = pool(build, build.operand(x), found, "sum", 0.0)

    def at(index: Index) -> Expr:
        count = product(_counted(v, out, bool(count_include_pad)) for v, out in zip(found, index[2:]))
        if not all(v.always_meets for v in found):
            # a window over nothing but padding gives 0, as in onnxruntime
            count = maximum(count, 1)
        return div(total.at(index), integer(count, x.dtype))

    return build.compute(total.shape, x.dtype, at)


def _counted(window: Window, out: IntExpr, with_padding: bool) -> IntExpr:
    """How many taps of a window count."""
    inside = not window.condition(out)
    if inside or (with_padding and not window.ceil):
        return IntExpr.of(window.kernel)
    start = window.position(out, ZERO)
    end = window.extent + window.end if with_padding else window.extent
    last = minimum(ceil_divide(end - start, window.dilation), window.kernel)
    if with_padding:
        return last
    return last - maximum(ceil_divide(-start, window.dilation), 0)


OPS = (
    Operator("AveragePool", infer_average, lower_average, kind="window", dtypes=FLOATS),
    Operator("MaxPool", infer_max, lower_max, kind="window", dtypes=NUMBERS),
)
