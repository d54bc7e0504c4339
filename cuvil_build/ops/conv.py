"""Conv over one to three spatial axes, with groups; depthwise is only a matter of shapes."""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import NotYet, ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import within
from cuvil_build.ops.batch_normalization import per_channel
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import mul
from cuvil_build.ops.shapes import FLOATS, same_dtype, static_dim
from cuvil_build.ops.windows import Window, require_room, windows


def infer(
    ctx: InferContext,
    x: Known,
    w: Known,
    bias: Known | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Known:
    if x.rank != w.rank or not 3 <= x.rank <= 5:
        raise NotYet(f"Conv of ranks {x.rank} and {w.rank}")
    kernel = [static_dim(extent, "a kernel") for extent in w.shape[2:]]
    if kernel_shape is not None and kernel != list(kernel_shape):
        raise ShapeMismatch(f"kernel_shape {kernel_shape} does not fit weights with kernel {kernel}")
    ctx.require_equal(w.shape[1] * group, x.shape[1], "channels of Conv")
    if static_dim(w.shape[0], "output channels") % group:
        raise ShapeMismatch(f"{w.shape[0]} output channels can't be cut into {group} groups")
    if bias is not None:
        ctx.require_equal(bias.shape[0], w.shape[0], "the bias of Conv")
    found = windows(x.shape[2:], kernel, auto_pad=auto_pad, strides=strides, dilations=dilations, pads=pads)
    require_room(ctx, found)
    return Known(same_dtype(x, w), (x.shape[0], w.shape[0], *(v.output for v in found)))


def lower(
    build: NestBuilder,
    x: View,
    w: View,
    bias: View | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> View:
    kernel = [extent.value for extent in w.shape[2:]]
    found = windows(x.shape[2:], kernel, auto_pad=auto_pad, strides=strides, dilations=dilations, pads=pads)
    shape = build.results[0][1]
    result = convolution(build, build.operand(x), build.operand(w), found, group, shape)
    return result if bias is None else build.map("add", result, per_channel(bias, result))


def convolution(
    build: NestBuilder, x: View, w: View, found: Sequence[Window], group: int, shape: Sequence[IntExpr]
) -> View:
    """The windowed sum of products alone."""
    per_group_out, per_group_in = w.shape[0].value // group, w.shape[1]
    zero = Const(x.dtype.numpy.type(0).item(), x.dtype)

    def body(index: Index, loops: Index) -> Expr:
        batch, channel, spatial = index[0], index[1], index[2:]
        source = loops[0] if group == 1 else channel // per_group_out * per_group_in + loops[0]
        at = [v.position(out, tap) for v, out, tap in zip(found, spatial, loops[1:])]
        conditions = [c for v, position in zip(found, at) for c in v.condition(position)]
        element = within(conditions, x.at((batch, source, *at)), zero)
        return mul(element, w.at((channel, *loops)))

    return build.reduce_over("sum", shape, w.shape[1:], body, x.dtype, anchor="window")


OP = Operator("Conv", infer, lower, kind="window", dtypes=FLOATS)
