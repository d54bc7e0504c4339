"""ConvTranspose, written as what each output element gathers: no scattered sums.

Output position u (counted from the padded start) meets the input at i with u == i * stride + k * dilation.
Without dilation, taps come in ceil(kernel / stride) steps of one phase: k = u % stride + stride * step and
i = u // stride - step. Where kernel equals stride there is one step, and a plain product remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import NotYet, ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import Condition, within
from cuvil_build.ops.batch_normalization import per_channel
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import mul
from cuvil_build.ops.shapes import FLOATS, Shape, same_dtype, static_dim


@dataclass(frozen=True, slots=True)
class _Spread:
    """How one spatial axis is spread out."""

    kernel: int
    stride: int
    dilation: int
    begin: IntExpr
    extent: IntExpr
    output: IntExpr

    @property
    def steps(self) -> int:
        return -(-self.kernel // self.stride) if self.dilation == 1 else self.kernel

    def meets(self, out: IntExpr, step: IntExpr) -> tuple[IntExpr, IntExpr, list[Condition]]:
        """(input position, tap, when they exist)."""
        start = out + self.begin
        if self.dilation > 1:
            reached = start - step * self.dilation
            position = reached // self.stride
            on_grid = (ZERO, reached % self.stride, ONE)
            return position, step, [on_grid, (ZERO, position, self.extent)]
        position, tap = start // self.stride - step, start % self.stride + step * self.stride
        conditions: list[Condition] = []
        if not self._always_inside():
            conditions.append((ZERO, position, self.extent))
        if self.kernel % self.stride:
            conditions.append((ZERO, tap, IntExpr.of(self.kernel)))
        return position, tap, conditions

    def _always_inside(self) -> bool:
        return self.steps == 1 and self.begin == ZERO and self.output == self.extent * self.stride


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
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Known:
    if x.rank != w.rank or not 3 <= x.rank <= 5:
        raise NotYet(f"ConvTranspose of ranks {x.rank} and {w.rank}")
    ctx.require_equal(w.shape[0], x.shape[1], "channels of ConvTranspose")
    kernel = [static_dim(extent, "a kernel") for extent in w.shape[2:]]
    if static_dim(w.shape[0], "input channels") % group:
        raise ShapeMismatch(f"{w.shape[0]} input channels can't be cut into {group} groups")
    found = _spreads(x.shape[2:], kernel, auto_pad, strides, dilations, pads, output_padding, output_shape)
    return Known(same_dtype(x, w), (x.shape[0], w.shape[1] * group, *(s.output for s in found)))


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
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> View:
    kernel = [extent.value for extent in w.shape[2:]]
    found = _spreads(x.shape[2:], kernel, auto_pad, strides, dilations, pads, output_padding, output_shape)
    x, w = build.operand(x), build.operand(w)
    inputs, outputs = w.shape[0].value // group, w.shape[1].value
    zero = Const(x.dtype.numpy.type(0).item(), x.dtype)

    def body(index: Index, loops: Index) -> Expr:
        channel, spatial = index[1], index[2:]
        source = loops[0] if group == 1 else channel // outputs * inputs + loops[0]
        target = channel if group == 1 else channel % outputs
        met = [s.meets(out, step) for s, out, step in zip(found, spatial, loops[1:])]
        conditions = [c for _, _, listed in met for c in listed]
        element = x.at((index[0], source, *(position for position, _, _ in met)))
        weight = w.at((source, target, *(tap for _, tap, _ in met)))
        if all(s.kernel % s.stride == 0 or s.dilation > 1 for s in found):
            return mul(within(conditions, element, zero), weight)
        return within(conditions, mul(element, weight), zero)

    extents = [IntExpr.of(inputs), *(IntExpr.of(s.steps) for s in found)]
    result = build.reduce_over("sum", build.results[0][1], extents, body, x.dtype, anchor="window")
    return result if bias is None else build.map("add", result, per_channel(bias, result))


def _spreads(
    spatial: Shape,
    kernel: Sequence[int],
    auto_pad: str,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None,
) -> list[_Spread]:
    rank = len(kernel)
    steps, spread = list(strides or [1] * rank), list(dilations or [1] * rank)
    extra, given = list(output_padding or [0] * rank), list(pads or [0] * (2 * rank))
    if auto_pad not in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise UnsupportedAttribute(f"auto_pad='{auto_pad}' is not supported")
    found: list[_Spread] = []
    for axis, extent in enumerate(spatial):
        reach = (kernel[axis] - 1) * spread[axis] + 1
        whole = (extent - 1) * steps[axis] + extra[axis] + reach
        begin, output = IntExpr.of(given[axis]), whole - given[axis] - given[axis + rank]
        same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
        if auto_pad == "VALID":
            begin, output = ZERO, whole
        if same or output_shape:
            output = IntExpr.of(output_shape[axis]) if output_shape else extent * steps[axis]
            total = whole - output
            # the odd element goes to the end, unless SAME_UPPER says otherwise (ONNX's own asymmetry)
            begin = total - total // 2 if auto_pad != "SAME_UPPER" else total // 2
            if not same:
                begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        found.append(_Spread(kernel[axis], steps[axis], spread[axis], begin, extent, output))
    return found


OP = Operator("ConvTranspose", infer, lower, kind="window", dtypes=FLOATS)
