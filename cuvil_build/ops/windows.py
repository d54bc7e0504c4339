"""Sliding windows: the attributes of convolutions and pools, their paddings and output sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cuvil_build.cuir.int_expr import ZERO, IntExpr, ceil_divide, maximum, minimum
from cuvil_build.errors import ShapeMismatch, UnsupportedAttribute, nearest
from cuvil_build.kernel.view import Condition
from cuvil_build.ops.operator import InferContext
from cuvil_build.ops.shapes import Shape

NO_AUTO_PAD = ("NOTSET", "")
SAME = ("SAME_UPPER", "SAME_LOWER")


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
    size: IntExpr | None = None
    """Of the output, where `auto_pad` says it."""

    @property
    def reach(self) -> int:
        """Input elements from the first to the last tap."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def output(self) -> IntExpr:
        if self.size is not None:
            return self.size
        span = self.extent + self.begin + self.end - self.reach
        if not self.ceil:
            return span // self.stride + 1
        # a window that would start in the padding at the end doesn't count
        return minimum(ceil_divide(span, self.stride) + 1, ceil_divide(self.extent + self.begin, self.stride))

    @property
    def always_meets(self) -> bool:
        """Whether each window has a tap in the input, by its paddings alone."""
        if self.dilation > 1:
            return False
        return self.size is not None or all(
            p.is_static and p.value < self.kernel for p in (self.begin, self.end)
        )

    def position(self, out: IntExpr, tap: IntExpr) -> IntExpr:
        return out * self.stride + tap * self.dilation - self.begin

    def condition(self, position: IntExpr) -> list[Condition]:
        """When a position lies in the input, where that is not always so."""
        if self.begin == ZERO and self.end == ZERO and not self.ceil:
            return []
        return [(ZERO, position, self.extent)]


@dataclass(frozen=True, slots=True)
class WindowAttributes:
    """ONNX's attributes of a window operator."""

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: Sequence[int] | None = None
    kernel_shape: Sequence[int] | None = None
    pads: Sequence[int] | None = None
    strides: Sequence[int] | None = None

    @staticmethod
    def of(attributes: Mapping[str, Any]) -> WindowAttributes:
        names = [f.name for f in fields(WindowAttributes)]
        unknown = sorted(set(attributes) - set(names))
        if unknown:
            raise UnsupportedAttribute(
                f"the attribute {', '.join(unknown)} is not supported", hint=nearest(unknown[0], names)
            )
        found = WindowAttributes(**attributes)
        if found.auto_pad not in (*NO_AUTO_PAD, *SAME, "VALID"):
            raise UnsupportedAttribute(
                f"auto_pad='{found.auto_pad}' is not supported", hint="re-export with explicit pads"
            )
        return found

    def of_weights(self, extents: Shape, ctx: InferContext | None = None) -> list[int]:
        """The kernel of weights with these spatial extents, which `kernel_shape` may repeat."""
        if self.kernel_shape is None:
            if not all(extent.is_static for extent in extents):
                raise UnsupportedAttribute(
                    f"a kernel of size {', '.join(map(str, extents))} is not supported",
                    hint="fix the dims of the weights, or give kernel_shape",
                )
            return [extent.value for extent in extents]
        kernel = list(self.kernel_shape)
        if len(kernel) != len(extents):
            raise ShapeMismatch(f"kernel_shape {kernel} on weights with {len(extents)} spatial axes")
        if ctx is not None:
            for have, want in zip(extents, kernel):
                ctx.require_equal(have, IntExpr.of(want), f"kernel_shape {kernel}")
        return kernel

    def steps(self, rank: int) -> tuple[list[int], list[int], list[int]]:
        """Strides, dilations and pads with their defaults, checked."""
        strides = list(self.strides or [1] * rank)
        dilations = list(self.dilations or [1] * rank)
        pads = list(self.pads or [0] * (2 * rank))
        for name, values, want in (
            ("strides", strides, rank),
            ("dilations", dilations, rank),
            ("pads", pads, 2 * rank),
        ):
            if len(values) != want:
                raise ShapeMismatch(
                    f"{name} {values} has {len(values)} entries, {rank} spatial axes need {want}"
                )
        for name, values in (("strides", strides), ("dilations", dilations)):
            if min(values, default=1) < 1:
                raise ShapeMismatch(f"{name} {values} must be positive")
        return strides, dilations, pads

    def windows(self, spatial: Shape, kernel: Sequence[int]) -> list[Window]:
        """One per spatial axis."""
        rank = len(kernel)
        if len(spatial) != rank:
            raise ShapeMismatch(f"a kernel of {rank} axes on {len(spatial)} spatial axes")
        if min(kernel, default=1) < 1:
            raise ShapeMismatch(f"a kernel of size {list(kernel)}")
        strides, dilations, pads = self.steps(rank)
        return [
            self._window(extent, taps, stride, dilation, (pads[axis], pads[axis + rank]))
            for axis, (extent, taps, stride, dilation) in enumerate(zip(spatial, kernel, strides, dilations))
        ]

    def _window(
        self, extent: IntExpr, kernel: int, stride: int, dilation: int, pads: tuple[int, int]
    ) -> Window:
        if self.auto_pad in SAME:
            size = ceil_divide(extent, stride)
            reach = (kernel - 1) * dilation + 1
            # with a stride of 1 the sum is a number, which a maximum with a symbol inside would hide
            wanted = (size - 1) * stride + reach - extent
            begin, end = halves(wanted if wanted.is_static and wanted.value >= 0 else maximum(wanted, ZERO))
            if self.auto_pad == "SAME_LOWER":
                begin, end = end, begin
            return Window(kernel, stride, dilation, begin, end, extent, size=size)
        if self.auto_pad == "VALID":
            return Window(kernel, stride, dilation, ZERO, ZERO, extent, bool(self.ceil_mode))
        begin, end = (IntExpr.of(v) for v in pads)
        return Window(kernel, stride, dilation, begin, end, extent, bool(self.ceil_mode))


def halves(total: IntExpr) -> tuple[IntExpr, IntExpr]:
    """Two addends, the second one larger where the total is odd."""
    half = total // 2
    return half, total - half


def windows(spatial: Shape, kernel: Sequence[int], **attributes: Any) -> list[Window]:
    """One per spatial axis, by the operator's attributes."""
    return WindowAttributes.of(attributes).windows(spatial, kernel)


def require_room(ctx: InferContext, found: Sequence[Window]) -> None:
    """A window may not be longer than the padded input; `auto_pad` sees to it by itself, and `ceil_mode` lets
    one stand over its end."""
    for axis, window in enumerate(found):
        if window.size is not None:
            continue
        room = window.extent + window.begin + window.end + (window.stride - 1 if window.ceil else 0)
        ctx.require_at_most(IntExpr.of(window.reach), room, f"the window on spatial axis {axis}")
