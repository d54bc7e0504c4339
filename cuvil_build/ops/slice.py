"""Slice with starts, ends, axes and steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, maximum, minimum
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr, Load
from cuvil_build.kernel.view import integer, reindex
from cuvil_build.ops.choices import Least, from_end, is_negative
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, div, mul, select, sub
from cuvil_build.ops.scalar import maximum as maximum_of
from cuvil_build.ops.scalar import minimum as minimum_of
from cuvil_build.ops.shapes import ANY, Shape, integers, normal_axes

Rows = list[tuple[IntExpr, IntExpr, IntExpr, IntExpr]]
"""(start, end, axis, step)."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """What stays of one axis."""

    begin: IntExpr
    count: IntExpr
    step: IntExpr


def infer(
    ctx: InferContext,
    x: Known,
    starts: Known,
    ends: Known,
    axes: Known | None = None,
    steps: Known | None = None,
) -> Known:
    if _axes_from_data(axes):
        _counted(starts, ends, axes, steps)
        dims = [ctx.measured(f"dim {axis}", 0, extent) for axis, extent in enumerate(x.shape)]
        return Known(x.dtype, tuple(dims))
    cuts = _cuts(lambda e: ctx.bounds(e)[0], x.shape, starts, ends, axes, steps)
    return Known(x.dtype, tuple(cuts[d].count if d in cuts else extent for d, extent in enumerate(x.shape)))


def lower(
    build: NestBuilder,
    x: View,
    starts: View,
    ends: View,
    axes: View | None = None,
    steps: View | None = None,
) -> View:
    if _axes_from_data(axes):
        return _picked(build, x, _counted(starts, ends, axes, steps))
    cuts = _cuts(build.low, x.shape, starts, ends, axes, steps)

    def remap(index: Index) -> Index:
        return tuple(cuts[d].begin + i * cuts[d].step if d in cuts else i for d, i in enumerate(index))

    return reindex(x, build.results[0][1], remap)


def measure(
    build: NestBuilder,
    x: View,
    starts: View,
    ends: View,
    axes: View | None = None,
    steps: View | None = None,
) -> tuple[View, ...]:
    """The dims where data decides the axes."""
    rows = _counted(starts, ends, axes, steps)
    counts = [_chosen_cut(rows, axis, x)[1] for axis in range(x.rank)]
    return tuple(build.scalar(count) for count in counts)


def _axes_from_data(axes: Known | View | None) -> bool:
    return axes is not None and not all(a.is_static for a in integers(axes, "axes of Slice"))


def _picked(build: NestBuilder, x: View, rows: Rows) -> View:
    source = build.materialise(x)
    assert source.buffer is not None
    buffer = source.buffer
    cuts = [_chosen_cut(rows, axis, x) for axis in range(x.rank)]

    def at(index: Index) -> Expr:
        places = [add(begin, mul(integer(i, INT64), step)) for i, (begin, _, step) in zip(index, cuts)]
        return Load(buffer, tuple(places))

    return build.compute(build.results[0][1], x.dtype, at)


def _chosen_cut(rows: Rows, axis: int, x: View) -> tuple[Expr, Expr, Expr]:
    """(first element, count, step) of an axis: those of the row that names it."""
    extent = integer(x.shape[axis], INT64)
    begin, count, step = (Const(0, INT64), extent, Const(1, INT64))
    found: tuple[Expr, Expr, Expr] = (begin, count, step)
    for start, end, along, stride in rows:
        first, last, named, by = (integer(n, INT64) for n in (start, end, along, stride))
        is_named = call("eq", _counted_from_end(named, Const(x.rank, INT64)), axis)
        back = call("lt", by, 0)
        high = select(back, sub(extent, 1), extent)
        low = select(back, Const(-1, INT64), Const(0, INT64))
        first = minimum_of(maximum_of(_counted_from_end(first, extent), 0), high)
        last = minimum_of(maximum_of(_counted_from_end(last, extent), low), high)
        span = select(back, sub(first, last), sub(last, first))
        size = maximum_of(select(back, sub(0, by), by), 1)
        number = maximum_of(div(add(span, sub(size, 1)), size), 0)
        found = (
            select(is_named, maximum_of(first, 0), found[0]),
            select(is_named, number, found[1]),
            select(is_named, by, found[2]),
        )
    return found


def _counted_from_end(position: Expr, extent: Expr) -> Expr:
    return select(call("lt", position, 0), add(position, extent), position)


def evaluate(
    ctx: InferContext,
    x: Contents,
    starts: Contents,
    ends: Contents,
    axes: Contents | None = None,
    steps: Contents | None = None,
) -> Contents | None:
    """The driver asks only where the result's shape is static: so starts and ends are."""
    bounds = [_static(c) for c in (starts, ends, axes, steps)]
    first, last, along, strides = bounds
    if first is None or last is None:
        return None
    listed = along if along is not None else list(range(len(first)))
    strides = strides if strides is not None else [1] * len(first)
    result = x
    for axis, start, end, step in zip(listed, first, last, strides):
        length = x.shape[axis]
        cut = _cut(
            lambda e: e.value if e.is_static else None,
            *map(IntExpr.of, (start, end, step, length)),
        )
        picked = [cut.begin.value + k * step for k in range(cut.count.value)]
        result = np.take(result, np.asarray(picked, dtype=np.int64), axis=axis)
    return result


def _static(contents: Contents | None) -> list[int] | None:
    if contents is None:
        return None
    values = [IntExpr.of(v) for v in contents.reshape(-1)]
    return [v.value for v in values] if all(v.is_static for v in values) else None


def _cuts(
    least: Least,
    shape: Shape,
    starts: Known | View,
    ends: Known | View,
    axes: Known | View | None,
    steps: Known | View | None,
) -> dict[int, _Cut]:
    """By axis."""
    rank = len(shape)
    rows = _counted(starts, ends, axes, steps)
    named = normal_axes([a.value for _, _, a, _ in rows], rank, "axes of Slice")
    return {
        axis: _cut(least, start, end, step, shape[axis]) for axis, (start, end, _, step) in zip(named, rows)
    }


def _counted(
    starts: Known | View, ends: Known | View, axes: Known | View | None, steps: Known | View | None
) -> Rows:
    first, last = integers(starts, "starts of Slice"), integers(ends, "ends of Slice")
    count = len(first)
    along = integers(axes, "axes of Slice") if axes is not None else [IntExpr.of(d) for d in range(count)]
    strides = integers(steps, "steps of Slice") if steps is not None else [ONE] * count
    if not count == len(last) == len(along) == len(strides):
        raise ShapeMismatch(
            f"Slice has {count} starts, {len(last)} ends, {len(along)} axes and {len(strides)} steps"
        )
    if ZERO in strides:
        raise ShapeMismatch("Slice with a step of 0")
    return list(zip(first, last, along, strides))


def _cut(least: Least, start: IntExpr, end: IntExpr, step: IntExpr, extent: IntExpr) -> _Cut:
    """One axis after clamping, as numpy counts."""
    back = is_negative(step, least)
    high = extent - back
    first = _between(least, from_end(start, extent, least), ZERO, high)
    last = _between(least, from_end(end, extent, least), -back, high)
    # a step of 0, which only data can give, must not divide
    size = step if back == ZERO and step.is_static else maximum(step * (1 - 2 * back), 1)
    count = ceil_divide((last - first) * (1 - 2 * back), size)
    begin = _first(least, start, back, extent)
    return _Cut(begin, count if (least(count) or -1) >= 0 or count == ZERO else maximum(count, 0), step)


def _between(least: Least, position: IntExpr, low: IntExpr, high: IntExpr) -> IntExpr:
    if _is_below_zero(least, position - low):
        position = maximum(position, low)
    return minimum(position, high) if _is_below_zero(least, high - position) else position


def _is_below_zero(least: Least, value: IntExpr) -> bool:
    """Whether it could be."""
    low = least(value)
    return low is None or low < 0


def _first(least: Least, start: IntExpr, back: IntExpr, extent: IntExpr) -> IntExpr:
    """The first element. It lies inside wherever there is an element at all, so that clamping is left
    out where only an empty slice could need it."""
    if _is_below_zero(least, start):
        start = from_end(start, extent, least)
        if start != extent - 1 and _is_below_zero(least, start):
            start = maximum(start, 0)
    if back == ZERO or start == extent - 1 or not _is_below_zero(least, extent - 1 - start):
        return start
    return minimum(start, extent - 1)


OP = Operator(
    "Slice",
    infer,
    lower,
    kind="view",
    dtypes=ANY,
    evaluate=evaluate,
    shape_operands=(1, 2, 3, 4),
    measure=measure,
)
