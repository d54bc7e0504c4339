"""Conv over any number of spatial axes, with groups; depthwise is only a matter of shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import within
from cuvil_build.ops.batch_normalization import per_channel
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import mul
from cuvil_build.ops.shapes import FLOATS, Shape, same_dtype
from cuvil_build.ops.windows import Window, WindowAttributes, require_room


def infer(
    ctx: InferContext, x: Known, w: Known, bias: Known | None = None, *, group: int = 1, **attributes: Any
) -> Known:
    if bias is not None:
        ctx.require_equal(bias.shape[0], w.shape[0], "the bias of Conv")
    return Known(same_dtype(x, w), infer_convolution(ctx, x, w, group, attributes))


def infer_convolution(
    ctx: InferContext, x: Known, w: Known, group: int, attributes: Mapping[str, Any]
) -> Shape:
    """The shape of the result."""
    moves = WindowAttributes.of(attributes)
    check_ranks("Conv", x, w)
    kernel = moves.of_weights(w.shape[2:], ctx)
    ctx.require_equal(w.shape[1] * group, x.shape[1], "channels of Conv")
    require_groups(w.shape[0], group, "output channels")
    found = moves.windows(x.shape[2:], kernel)
    require_room(ctx, found)
    return (x.shape[0], w.shape[0], *(v.output for v in found))


def lower(
    build: NestBuilder, x: View, w: View, bias: View | None = None, *, group: int = 1, **attributes: Any
) -> View:
    moves = WindowAttributes.of(attributes)
    found = moves.windows(x.shape[2:], moves.of_weights(w.shape[2:]))
    shape = build.results[0][1]
    if group == 1:
        x, w = build.factors(x, w, matrix=all(size == ONE for size in w.shape[2:]))
    else:
        x, w = build.operand(x), build.operand(w)
    result = convolution(build, x, w, found, group, shape)
    return result if bias is None else build.map("add", result, per_channel(bias, result))


def convolution(
    build: NestBuilder,
    x: View,
    w: View,
    found: Sequence[Window],
    group: int,
    shape: Sequence[IntExpr],
    dtype: DType | None = None,
    multiply: Callable[[Expr, Expr], Expr] = mul,
) -> View:
    """The windowed sum of products alone; `multiply` gives numbers of the dtype, else of the input's."""
    per_group_in = w.shape[1]
    zero = Const(x.dtype.numpy.type(0).item(), x.dtype)

    def source_of(channel: IntExpr, loop: IntExpr) -> IntExpr:
        if group == 1:
            return loop
        return channel // (w.shape[0].value // group) * per_group_in + loop

    def body(index: Index, loops: Index) -> Expr:
        batch, channel, spatial = index[0], index[1], index[2:]
        at = [v.position(out, tap) for v, out, tap in zip(found, spatial, loops[1:])]
        conditions = [c for v, position in zip(found, at) for c in v.condition(position)]
        element = within(conditions, x.at((batch, source_of(channel, loops[0]), *at)), zero)
        return multiply(element, w.at((channel, *loops)))

    extents = [w.shape[1], *(IntExpr.of(v.kernel) for v in found)]
    return build.reduce_over("sum", shape, extents, body, dtype or x.dtype, anchor="window")


def check_ranks(what: str, x: Known, w: Known) -> None:
    if x.rank != w.rank or x.rank < 3:
        raise ShapeMismatch(f"{what} of ranks {x.rank} and {w.rank}; both must be the same, 3 or more")


def require_groups(channels: IntExpr, group: int, what: str) -> None:
    """Channels that can be cut into groups of equal size; without groups they may be anything."""
    if group < 1:
        raise ShapeMismatch(f"group={group}")
    if group == 1:
        return
    if not channels.is_static:
        raise ShapeMismatch(f"{channels} {what} in {group} groups; fix the dims of the weights")
    if channels.value % group:
        raise ShapeMismatch(f"{channels} {what} can't be cut into {group} groups")


OP = Operator("Conv", infer, lower, kind="window", dtypes=FLOATS)
