"""Sliding windows: paddings and output sizes of convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ZERO, IntExpr, ceil_divide, maximum, minimum
from cuvil_build.errors import ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.view import Condition
from cuvil_build.ops.operator import InferContext
from cuvil_build.ops.shapes import Shape


@dataclass(frozen=True, slots=True)
class Window:
    """How a window moves along one spatial axis."""

    kernel: int
    stride: int
    dilation: int
    begin: IntExpr
    end: IntExpr
    extent: IntExpr
    """Of the input."""
    ceil: bool = False

    @property
    def reach(self) -> int:
        """Input elements from the first to the last tap."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def output(self) -> IntExpr:
        span = self.extent + self.begin + self.end - self.reach
        if not self.ceil:
            return span // self.stride + 1
        # a window that would start in the padding at the end doesn't count
        return minimum(ceil_divide(span, self.stride) + 1, ceil_divide(self.extent + self.begin, self.stride))

    def position(self, out: IntExpr, tap: IntExpr) -> IntExpr:
        return out * self.stride + tap * self.dilation - self.begin

    def condition(self, position: IntExpr) -> list[Condition]:
        """When a position lies in the input, where that is not always so."""
        if self.begin == ZERO and self.end == ZERO and not self.ceil:
            return []
        return [(ZERO, position, self.extent)]


def windows(
    spatial: Shape,
    kernel: Sequence[int],
    *,
    auto_pad: str = "NOTSET",
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    ceil_mode: int = 0,
) -> list[Window]:
    """One per spatial axis, with ONNX's attributes and their defaults."""
    rank = len(kernel)
    if len(spatial) != rank:
        raise ShapeMismatch(f"a kernel of {rank} axes on {len(spatial)} spatial axes")
    steps = list(strides or [1] * rank)
    spread = list(dilations or [1] * rank)
    explicit = list(pads or [0] * (2 * rank))
    for name, values, want in (
        ("strides", steps, rank),
        ("dilations", spread, rank),
        ("pads", explicit, 2 * rank),
    ):
        if len(values) != want:
            raise ShapeMismatch(f"{name} {values} has {len(values)} entries, {rank} spatial axes need {want}")
    found: list[Window] = []
    for axis, extent in enumerate(spatial):
        begin, end = IntExpr.of(explicit[axis]), IntExpr.of(explicit[axis + rank])
        if auto_pad not in ("NOTSET", ""):
            begin, end = _automatic(auto_pad, extent, kernel[axis], steps[axis], spread[axis])
        found.append(Window(kernel[axis], steps[axis], spread[axis], begin, end, extent, bool(ceil_mode)))
    return found


def require_room(ctx: InferContext, found: Sequence[Window]) -> None:
    for axis, window in enumerate(found):
        room = window.extent + window.begin + window.end
        ctx.require_at_most(IntExpr.of(window.reach), room, f"the window on spatial axis {axis}")


def _automatic(
    mode: str, extent: IntExpr, kernel: int, stride: int, dilation: int
) -> tuple[IntExpr, IntExpr]:
    if mode == "VALID":
        return ZERO, ZERO
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise UnsupportedAttribute(f"auto_pad='{mode}' is not supported", hint="re-export with explicit pads")
    reach = (kernel - 1) * dilation + 1
    total = maximum((ceil_divide(extent, stride) - 1) * stride + reach - extent, 0)
    half = total // 2
    return (half, total - half) if mode == "SAME_UPPER" else (total - half, half)
