"""ConvTranspose, written as what each output element gathers: no scattered sums.

Output position u (counted from the padded start) meets the input at i with u == i * stride + k * dilation.
Without dilation, taps come in ceil(kernel / stride) steps of one phase: k = u % stride + stride * step and
i = u // stride - step. Where kernel equals stride there is one step, and a plain product remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import Condition, within
from cuvil_build.ops.batch_normalization import per_channel
from cuvil_build.ops.conv import check_ranks, require_groups
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import mul
from cuvil_build.ops.shapes import FLOATS, Shape, same_dtype
from cuvil_build.ops.windows import SAME, WindowAttributes, halves


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
    group: int = 1,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    **attributes: Any,
) -> Known:
    moves = WindowAttributes.of(attributes)
    check_ranks("ConvTranspose", x, w)
    ctx.require_equal(w.shape[0], x.shape[1], "channels of ConvTranspose")
    kernel = moves.of_weights(w.shape[2:], ctx)
    require_groups(w.shape[0], group, "input channels")
    if bias is not None:
        ctx.require_equal(bias.shape[0], w.shape[1] * group, "the bias of ConvTranspose")
    found = _spreads(x.shape[2:], kernel, moves, output_padding, output_shape)
    for axis, spread in enumerate(found):
        ctx.require_at_most(ZERO, spread.output, f"the output of ConvTranspose on spatial axis {axis}")
    return Known(same_dtype(x, w), (x.shape[0], w.shape[1] * group, *(s.output for s in found)))


def lower(
    build: NestBuilder,
    x: View,
    w: View,
    bias: View | None = None,
    *,
    group: int = 1,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    **attributes: Any,
) -> View:
    moves = WindowAttributes.of(attributes)
    found = _spreads(x.shape[2:], moves.of_weights(w.shape[2:]), moves, output_padding, output_shape)
    x, w = build.operand(x), build.operand(w)
    inputs, outputs = w.shape[0] if group == 1 else IntExpr.of(w.shape[0].value // group), w.shape[1]
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

    extents = [inputs, *(IntExpr.of(s.steps) for s in found)]
    result = build.reduce_over("sum", build.results[0][1], extents, body, x.dtype, anchor="window")
    return result if bias is None else build.map("add", result, per_channel(bias, result))


def _spreads(
    spatial: Shape,
    kernel: Sequence[int],
    moves: WindowAttributes,
    output_padding: Sequence[int] | None,
    output_shape: Sequence[int] | None,
) -> list[_Spread]:
    rank = len(kernel)
    if len(spatial) != rank:
        raise ShapeMismatch(f"a kernel of {rank} axes on {len(spatial)} spatial axes")
    strides, dilations, pads = moves.steps(rank)
    extra = list(output_padding or [0] * rank)
    # some exporters give the whole shape, batch and channels included
    wanted = list(output_shape)[-rank:] if output_shape else None
    for name, values in (("output_padding", extra), ("output_shape", wanted)):
        if values is not None and len(values) != rank:
            raise ShapeMismatch(f"{name} {values} has {len(values)} entries, {rank} spatial axes need {rank}")
    found: list[_Spread] = []
    for axis, extent in enumerate(spatial):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        whole = (extent - 1) * strides[axis] + extra[axis] + reach
        begin, output = IntExpr.of(pads[axis]), whole - pads[axis] - pads[axis + rank]
        if moves.auto_pad == "VALID":
            begin, output = ZERO, whole
        if moves.auto_pad in SAME or wanted is not None:
            output = IntExpr.of(wanted[axis]) if wanted is not None else extent * strides[axis]
            small, large = halves(maximum(whole - output, ZERO))
            begin = small if moves.auto_pad == "SAME_UPPER" else large
        found.append(_Spread(kernel[axis], strides[axis], dilations[axis], begin, extent, output))
    return found


OP = Operator("ConvTranspose", infer, lower, kind="window", dtypes=FLOATS)
