"""RoiAlign and MaxRoiPool: regions of a picture brought to one size."""

from __future__ import annotations

import math
from collections.abc import Callable

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.routine_writer import RoutineWriter, load
from cuvil_build.kernel.view import integer, of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.sampling import Tap, clamped, sampled, whole
from cuvil_build.ops.scalar import add, call, cast, div, maximum, minimum, mul, select, sub
from cuvil_build.ops.shapes import FLOATS, require_attribute


def infer_align(
    ctx: InferContext,
    x: Known,
    rois: Known,
    batches: Known,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Known:
    require_attribute(
        coordinate_transformation_mode in ("half_pixel", "output_half_pixel"),
        f"coordinate_transformation_mode='{coordinate_transformation_mode}'",
    )
    require_attribute(mode in ("avg", "max"), f"mode='{mode}'", "known: avg, max")
    if x.rank != 4 or rois.rank != 2 or batches.rank != 1:
        raise ShapeMismatch(f"RoiAlign of ranks {x.rank}, {rois.rank} and {batches.rank}")
    ctx.require_equal(rois.shape[1], IntExpr.of(4), "numbers of a region of RoiAlign")
    count = ctx.require_equal(rois.shape[0], batches.shape[0], "regions of RoiAlign")
    return Known(x.dtype, (count, x.shape[1], IntExpr.of(output_height), IntExpr.of(output_width)))


def lower_align(
    build: NestBuilder,
    x: View,
    rois: View,
    batches: View,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> View:
    source, rois, batches = build.buffer(x), build.operand(rois), build.operand(batches)
    is_half = coordinate_transformation_mode == "half_pixel"
    result = build.result(0, *build.results[0])
    with build.routine("loop", build.results[0][1]) as r:
        roi, channel = r.point[:2]
        batch = r.let(clamped(cast(batches.at((roi,)), INT64), x.shape[0]), "batch")
        sides = []
        for d, (first, pooled) in enumerate(((1, output_height), (0, output_width))):
            start, end = (
                sub(mul(rois.at((roi, IntExpr.of(k))), spatial_scale), 0.5 if is_half else 0.0)
                for k in (first, first + 2)
            )
            low = r.let(start, "start")
            size = sub(end, low)
            step = r.let(div(size if is_half else maximum(size, 1.0), float(pooled)), "bin")
            count = r.let(
                sampling_ratio if sampling_ratio > 0 else cast(call("ceil", step), INT64), "samples"
            )
            sides.append((low, step, count, x.shape[2 + d], r.point[2 + d]))
        total = r.let(0.0, "total", x.dtype)
        is_first = r.let(1, "first")
        with r.loop(sides[0][2]) as i, r.loop(sides[1][2]) as j:
            axes = []
            for (low, step, count, extent, out), k in zip(sides, (i, j)):
                inner = div(mul(add(integer(k, low.dtype), 0.5), step), cast(count, low.dtype))
                position = add(add(low, mul(integer(out, low.dtype), step)), inner)
                axes.append(_around(r, position, extent))
            if mode == "avg":
                value = sampled(axes, lambda at: load(source, batch, channel, *at))
                r.set(total, add(total, value))
            else:
                value = _largest(axes, lambda at: load(source, batch, channel, *at))
                r.set(total, select(call("eq", is_first, 1), value, maximum(total, value)))
                r.set(is_first, 0)
        if mode == "avg":
            samples = maximum(mul(sides[0][2], sides[1][2]), 1)
            r.set(total, div(total, cast(samples, total.dtype)))
        r.store(result, r.point, total)
    return of_buffer(result)


def _around(r: RoutineWriter, position: Expr, extent: IntExpr) -> list[Tap]:
    """The two elements around a position; nothing counts that is more than one element outside."""
    at = r.let(position, "at")
    last = integer(extent - 1, INT64)
    there = call("and", call("ge", at, -1.0), call("le", at, integer(extent, at.dtype)))
    inside = r.let(maximum(at, 0.0), "inside")
    low = r.let(whole(inside), "low")
    is_end = call("ge", low, last)
    fraction = r.let(select(is_end, Const(0.0, at.dtype), sub(inside, cast(low, at.dtype))), "fraction")
    near, far = clamped(low, extent), clamped(add(low, 1), extent)
    return [Tap(sub(1.0, fraction), near, there), Tap(fraction, far, there)]


def _largest(axes: list[list[Tap]], element: Callable[[tuple[Expr, ...]], Expr]) -> Expr:
    """The largest weighted element: what RoiAlign's maximum is taken of."""
    found: Expr | None = None
    for row in axes[0]:
        for column in axes[1]:
            value = sampled([[row], [column]], element)
            found = value if found is None else maximum(found, value)
    assert found is not None
    return found


def infer_pool(
    ctx: InferContext, x: Known, rois: Known, *, pooled_shape: list[int], spatial_scale: float = 1.0
) -> Known:
    if x.rank != 4 or rois.rank != 2 or len(pooled_shape) != 2:
        raise ShapeMismatch(f"MaxRoiPool of ranks {x.rank} and {rois.rank} to {pooled_shape}")
    ctx.require_equal(rois.shape[1], IntExpr.of(5), "numbers of a region of MaxRoiPool")
    return Known(x.dtype, (rois.shape[0], x.shape[1], *map(IntExpr.of, pooled_shape)))


def lower_pool(
    build: NestBuilder, x: View, rois: View, *, pooled_shape: list[int], spatial_scale: float = 1.0
) -> View:
    source, rois = build.buffer(x), build.operand(rois)
    result = build.result(0, *build.results[0])
    with build.routine("loop", build.results[0][1]) as r:
        roi, channel = r.point[:2]
        batch = r.let(clamped(cast(rois.at((roi, IntExpr.of(0))), INT64), x.shape[0]), "batch")
        bounds = []
        for d, first in enumerate((2, 1)):
            start, end = (
                r.let(cast(call("round", mul(rois.at((roi, IntExpr.of(k))), spatial_scale)), INT64), "side")
                for k in (first, first + 2)
            )
            size = cast(maximum(add(sub(end, start), 1), 1), rois.dtype)
            step = r.let(div(size, float(pooled_shape[d])), "bin")
            out = integer(r.point[2 + d], rois.dtype)
            extent = integer(x.shape[2 + d], INT64)
            low = add(whole(mul(out, step)), start)
            high = add(cast(call("ceil", mul(add(out, 1.0), step)), INT64), start)
            bounds.append([r.let(maximum(minimum(side, extent), 0), "bound") for side in (low, high)])
        best = r.let(-math.inf, "best", x.dtype)
        with r.loop(bounds[0][1], start=bounds[0][0]) as i, r.loop(bounds[1][1], start=bounds[1][0]) as j:
            r.set(best, maximum(best, load(source, batch, channel, i, j)))
        is_empty = call("or", *(call("le", high, low) for low, high in bounds))
        r.store(result, r.point, select(is_empty, Const(0.0, x.dtype), best))
    return of_buffer(result)


OPS = (
    Operator("MaxRoiPool", infer_pool, lower_pool, kind="loop", dtypes=FLOATS),
    Operator("RoiAlign", infer_align, lower_align, kind="loop", dtypes=FLOATS),
)
