"""DeformConv: a convolution whose taps are moved by offsets that data gives."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.errors import NotYet, ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import integer
from cuvil_build.ops.batch_normalization import per_channel
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.sampling import Tap, clamped, is_inside, sampled, whole
from cuvil_build.ops.scalar import add, cast, mul, sub
from cuvil_build.ops.shapes import FLOATS, same_dtype, static_dim
from cuvil_build.ops.windows import Window, windows


def infer(
    ctx: InferContext,
    x: Known,
    w: Known,
    offset: Known,
    bias: Known | None = None,
    mask: Known | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Known:
    if x.rank < 3 or not x.rank == w.rank == offset.rank:
        raise ShapeMismatch(f"DeformConv of ranks {x.rank}, {w.rank} and {offset.rank}")
    found = _windows(x, w, strides, dilations, pads)
    if static_dim(w.shape[0], "output channels of DeformConv") % group:
        raise ShapeMismatch(f"{w.shape[0]} output channels can't be cut into {group} groups")
    ctx.require_equal(x.shape[1], w.shape[1] * group, "channels of DeformConv")
    ctx.require_equal(x.shape[1] % offset_group, IntExpr.of(0), "channels of an offset group, remainder")
    taps = product(w.shape[2:])
    ctx.require_equal(offset.shape[1], taps * (offset_group * len(found)), "offsets of DeformConv")
    batch = ctx.require_equal(x.shape[0], offset.shape[0], "batch of DeformConv")
    places = [
        ctx.require_equal(v.output, extent, "offsets of DeformConv")
        for v, extent in zip(found, offset.shape[2:])
    ]
    if mask is not None:
        ctx.require_equal(mask.shape[1], taps * offset_group, "the mask of DeformConv")
    return Known(same_dtype(x, w), (batch, w.shape[0], *places))


def lower(
    build: NestBuilder,
    x: View,
    w: View,
    offset: View,
    bias: View | None = None,
    mask: View | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> View:
    """The moved taps of each place go to memory as columns; the sum over them is a matrix product."""
    found = _windows(x, w, strides, dilations, pads)
    rank, shape = len(found), build.results[0][1]
    kernel = [IntExpr.of(v.kernel) for v in found]
    source, offset, w = build.buffer(x), build.operand(offset), build.operand(w)
    mask = None if mask is None else build.operand(mask)
    per_offset = x.shape[1] // offset_group

    def column(index: Index) -> Expr:
        """[batch, channel, taps, places]."""
        batch, channel, taps, places = index[0], index[1], index[2 : 2 + rank], index[2 + rank :]
        own = channel // per_offset if offset_group > 1 else IntExpr.of(0)
        flat = own
        for tap, extent in zip(taps, kernel):
            flat = flat * extent + tap
        axes = []
        for d, window in enumerate(found):
            moved = offset.at((batch, flat * rank + d, *places))
            start = integer(window.position(places[d], taps[d]), moved.dtype)
            axes.append(_taps(add(start, moved), window.extent))
        value = sampled(axes, lambda at: load(source, batch, channel, *at))
        return value if mask is None else mul(value, mask.at((batch, flat, *places)))

    every = (shape[0], x.shape[1], *kernel, *shape[2:])
    columns = build.materialise(build.compute(every, x.dtype, column))
    inputs, outputs = w.shape[1], w.shape[0].value // group

    def body(index: Index, loops: Index) -> Expr:
        first = index[1] // outputs * inputs if group > 1 else IntExpr.of(0)
        element = columns.at((index[0], first + loops[0], *loops[1:], *index[2:]))
        return mul(element, w.at((index[1], *loops)))

    result = build.reduce_over("sum", shape, [inputs, *kernel], body, x.dtype)
    return result if bias is None else build.map("add", result, per_channel(bias, result))


def _taps(position: Expr, extent: IntExpr) -> list[Tap]:
    below = whole(position)
    fraction = sub(position, cast(below, position.dtype))
    return [
        Tap(weight, clamped(at, extent), is_inside(at, extent))
        for at, weight in ((below, sub(1.0, fraction)), (add(below, 1), fraction))
    ]


def _windows(
    x: Known | View,
    w: Known | View,
    strides: list[int] | None,
    dilations: list[int] | None,
    pads: list[int] | None,
) -> list[Window]:
    kernel = [static_dim(extent, "a kernel") for extent in w.shape[2:]]
    if not all(extent > 0 for extent in kernel):
        raise NotYet("DeformConv with an empty kernel")
    return windows(x.shape[2:], kernel, strides=strides, dilations=dilations, pads=pads)


OP = Operator("DeformConv", infer, lower, kind="contraction", dtypes=FLOATS)
