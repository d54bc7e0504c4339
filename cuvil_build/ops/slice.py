"""Slice with starts, ends, axes and steps."""

from __future__ import annotations

import numpy as np

from cuvil_build.cuir.int_expr import ZERO, IntExpr, ceil_divide, maximum, minimum
from cuvil_build.errors import NotYet, ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.view import reindex
from cuvil_build.ops.contents import Contents
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, integers, normal_axes, static_integers


def infer(
    ctx: InferContext,
    x: Known,
    starts: Known,
    ends: Known,
    axes: Known | None = None,
    steps: Known | None = None,
) -> Known:
    first, last = integers(starts, "starts of Slice"), integers(ends, "ends of Slice")
    along, strides = _axes_and_steps(x.rank, len(first), axes, steps)
    if len(first) != len(last):
        raise ShapeMismatch(f"Slice has {len(first)} starts and {len(last)} ends")
    shape = list(x.shape)
    for start, end, axis, step in zip(first, last, along, strides):
        shape[axis] = _length(ctx, start, end, step, x.shape[axis])
    return Known(x.dtype, tuple(shape))


def lower(
    build: NestBuilder,
    x: View,
    starts: View,
    ends: View,
    axes: View | None = None,
    steps: View | None = None,
) -> View:
    first = integers(starts, "starts of Slice")
    along, strides = _axes_and_steps(x.rank, len(first), axes, steps)
    begin = {a: (_first(build, s, t, x.shape[a]), t) for s, a, t in zip(first, along, strides)}

    def remap(index: Index) -> Index:
        return tuple(begin[d][0] + i * begin[d][1] if d in begin else i for d, i in enumerate(index))

    return reindex(x, build.results[0][1], remap)


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
    result = x
    for n, axis in enumerate(listed):
        step = strides[n] if strides is not None else 1
        length = IntExpr.of(x.shape[axis])
        count = _length(ctx, IntExpr.of(first[n]), IntExpr.of(last[n]), step, length).value
        begin = _clamped(first[n], step, x.shape[axis])
        picked = [begin + k * step for k in range(count)]
        result = np.take(result, np.asarray(picked, dtype=np.int64), axis=axis)
    return result


def _static(contents: Contents | None) -> list[int] | None:
    if contents is None:
        return None
    values = [IntExpr.of(v) for v in contents.reshape(-1)]
    return [v.value for v in values] if all(v.is_static for v in values) else None


def _axes_and_steps(
    rank: int, count: int, axes: Known | View | None, steps: Known | View | None
) -> tuple[list[int], list[int]]:
    along = static_integers(axes, "axes of Slice") if axes is not None else list(range(count))
    strides = static_integers(steps, "steps of Slice") if steps is not None else [1] * count
    if len(along) != count or len(strides) != count:
        raise ShapeMismatch(f"Slice has {count} starts, {len(along)} axes and {len(strides)} steps")
    if 0 in strides:
        raise ShapeMismatch("Slice with a step of 0")
    return normal_axes(along, rank, "axes of Slice"), strides


def _clamped(start: int, step: int, extent: int) -> int:
    start = start + extent if start < 0 else start
    return min(max(start, 0), extent if step > 0 else extent - 1)


def _length(ctx: InferContext, start: IntExpr, end: IntExpr, step: int, extent: IntExpr) -> IntExpr:
    """Elements of one axis after clamping, as numpy counts them."""
    low, high = (ZERO, extent) if step > 0 else (IntExpr.of(-1), extent - 1)
    first = _bounded(ctx, _from_end(ctx, start, extent), low if step > 0 else ZERO, high)
    last = _bounded(ctx, _from_end(ctx, end, extent), low, high)
    span = last - first if step > 0 else first - last
    return _not_negative(ctx, ceil_divide(span, abs(step)))


def _from_end(ctx: InferContext, position: IntExpr, extent: IntExpr) -> IntExpr:
    low, high = ctx.bounds(position)
    if low >= 0:
        return position
    if high is not None and high < 0:
        return position + extent
    raise NotYet(f"Slice at {position}, whose sign is not known")


def _bounded(ctx: InferContext, position: IntExpr, low: IntExpr, high: IntExpr) -> IntExpr:
    if ctx.bounds(position - low)[0] < 0:
        position = maximum(position, low)
    return position if ctx.bounds(high - position)[0] >= 0 else minimum(position, high)


def _not_negative(ctx: InferContext, length: IntExpr) -> IntExpr:
    return length if ctx.bounds(length)[0] >= 0 else maximum(length, 0)


def _first(build: NestBuilder, start: IntExpr, step: int, extent: IntExpr) -> IntExpr:
    """The first element. It lies inside wherever there is an element at all, so that clamping is left
    out where only an empty slice could need it."""
    low = build.low(start)
    if low is None or low < 0:
        start = start + extent
        if start == extent - 1 or (build.low(start) or -1) >= 0:
            return start
        return maximum(start, 0)
    if step > 0 or (build.low(extent - 1 - start) or -1) >= 0:
        return start
    return minimum(start, extent - 1)


OP = Operator("Slice", infer, lower, kind="view", dtypes=ANY, evaluate=evaluate, shape_operands=(1, 2, 3, 4))
