"""Pools: the maximum or the mean of sliding windows, and of whole planes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ONE, IntExpr, ceil_divide, maximum, minimum, product
from cuvil_build.errors import NotYet, ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import integer, within
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.reduce import mean
from cuvil_build.ops.scalar import div
from cuvil_build.ops.shapes import FLOATS, NUMBERS
from cuvil_build.ops.windows import Window, require_room, windows


def _infer(ctx: InferContext, x: Known, found: Sequence[Window]) -> Known:
    require_room(ctx, found)
    return Known(x.dtype, (*x.shape[:2], *(v.output for v in found)))


def _pool(build: NestBuilder, x: View, found: Sequence[Window], kind: str, neutral: int | float) -> View:
    outside = Const(neutral, x.dtype)

    def body(index: Index, loops: Index) -> Expr:
        at = [v.position(out, tap) for v, out, tap in zip(found, index[2:], loops)]
        conditions = [c for v, position in zip(found, at) for c in v.condition(position)]
        return within(conditions, x.at((*index[:2], *at)), outside)

    taps = [IntExpr.of(v.kernel) for v in found]
    return build.reduce_over(kind, build.results[0][1], taps, body, x.dtype, anchor="window")


def infer_max(
    ctx: InferContext,
    x: Known,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
) -> Known:
    if ctx.output_count > 1:
        raise NotYet("the indices of MaxPool")
    found = windows(
        x.shape[2:],
        kernel_shape,
        auto_pad=auto_pad,
        strides=strides,
        dilations=dilations,
        pads=pads,
        ceil_mode=ceil_mode,
    )
    return _infer(ctx, x, found)


def lower_max(
    build: NestBuilder,
    x: View,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
) -> View:
    found = windows(
        x.shape[2:],
        kernel_shape,
        auto_pad=auto_pad,
        strides=strides,
        dilations=dilations,
        pads=pads,
        ceil_mode=ceil_mode,
    )
    return _pool(build, build.operand(x), found, "max", lowest(x.dtype))


def infer_average(
    ctx: InferContext,
    x: Known,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Known:
    found = windows(
        x.shape[2:],
        kernel_shape,
        auto_pad=auto_pad,
        strides=strides,
        dilations=dilations,
        pads=pads,
        ceil_mode=ceil_mode,
    )
    return _infer(ctx, x, found)


def lower_average(
    build: NestBuilder,
    x: View,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> View:
    found = windows(
        x.shape[2:],
        kernel_shape,
        auto_pad=auto_pad,
        strides=strides,
        dilations=dilations,
        pads=pads,
        ceil_mode=ceil_mode,
    )
    total = _pool(build, build.operand(x), found, "sum", 0.0)

    def at(index: Index) -> Expr:
        counts = [_taps(v, out, bool(count_include_pad)) for v, out in zip(found, index[2:])]
        return div(total.at(index), integer(product(counts), x.dtype))

    return build.compute(total.shape, x.dtype, at)


def _taps(window: Window, out: IntExpr, with_padding: bool) -> IntExpr:
    """How many taps of a window count."""
    inside = not window.condition(out)
    if inside or (with_padding and not window.ceil):
        return IntExpr.of(window.kernel)
    start = window.position(out, IntExpr.of(0))
    end = window.extent + window.end if with_padding else window.extent
    last = minimum(ceil_divide(end - start, window.dilation), window.kernel)
    if with_padding:
        return last
    return last - maximum(ceil_divide(-start, window.dilation), 0)


def lowest(dtype: DType) -> int | float:
    """The neutral element of a maximum."""
    if dtype.is_float:
        return -math.inf
    return 0 if dtype.kind == "bool" else int(np.iinfo(dtype.numpy).min)


def infer_global(ctx: InferContext, x: Known) -> Known:
    if x.rank < 3:
        raise ShapeMismatch(f"a global pool needs spatial axes, the input has rank {x.rank}")
    return Known(x.dtype, (*x.shape[:2], *(ONE for _ in x.shape[2:])))


def lower_global_average(build: NestBuilder, x: View) -> View:
    return mean(build, build.settle(x), list(range(2, x.rank)))


def lower_global_max(build: NestBuilder, x: View) -> View:
    return build.reduce("max", build.settle(x), list(range(2, x.rank)))


OPS = (
    Operator("AveragePool", infer_average, lower_average, kind="window", dtypes=FLOATS),
    Operator("GlobalAveragePool", infer_global, lower_global_average, kind="reduce", dtypes=FLOATS),
    Operator("GlobalMaxPool", infer_global, lower_global_max, kind="reduce", dtypes=FLOATS),
    Operator("MaxPool", infer_max, lower_max, kind="window", dtypes=NUMBERS),
)
