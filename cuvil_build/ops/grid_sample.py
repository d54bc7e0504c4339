"""GridSample: elements at positions that a grid gives, in any number of spatial dims."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import ShapeMismatch, UnsupportedDtype
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import integer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.sampling import Tap, clamped, cubic_weights, is_inside, sampled, whole
from cuvil_build.ops.scalar import add, call, cast, div, maximum, minimum, mul, select, sub
from cuvil_build.ops.shapes import NUMBERS, require_attribute

MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}
"""The first two are the names before opset 20."""
PADDINGS = ("zeros", "border", "reflection")
CUBIC = -0.75


def infer(
    ctx: InferContext,
    x: Known,
    grid: Known,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Known:
    require_attribute(mode in MODES, f"mode='{mode}'", f"known: {', '.join(MODES)}")
    require_attribute(padding_mode in PADDINGS, f"padding_mode='{padding_mode}'")
    if not x.dtype.is_float and MODES[mode] != "nearest":
        raise UnsupportedDtype(f"GridSample between elements of {x.dtype}")
    if x.rank < 3 or grid.rank != x.rank:
        raise ShapeMismatch(f"GridSample of ranks {x.rank} and {grid.rank}")
    ctx.require_equal(grid.shape[-1], IntExpr.of(x.rank - 2), "coordinates of GridSample")
    batch = ctx.require_equal(x.shape[0], grid.shape[0], "batch of GridSample")
    return Known(x.dtype, (batch, x.shape[1], *grid.shape[1:-1]))


def lower(
    build: NestBuilder,
    x: View,
    grid: View,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> View:
    source, grid = build.buffer(x), build.operand(grid)
    rank = x.rank - 2

    def at(index: Index) -> Expr:
        taps = []
        for d in range(rank):
            # the grid names the last dim first
            coordinate = grid.at((index[0], *index[2:], IntExpr.of(rank - 1 - d)))
            taps.append(
                _Axis(x.shape[2 + d], bool(align_corners), padding_mode).taps(coordinate, MODES[mode])
            )
        return sampled(taps, lambda position: load(source, index[0], index[1], *position))

    return build.compute(build.results[0][1], x.dtype, at)


class _Axis:
    """One spatial axis: what its positions mean and what lies around it."""

    def __init__(self, extent: IntExpr, align_corners: bool, padding: str) -> None:
        self.extent = extent
        self.align_corners = align_corners
        self.padding = padding

    def taps(self, coordinate: Expr, mode: str) -> list[Tap]:
        position = self._position(coordinate)
        if mode == "nearest":
            position = call("rint", position)
        # a cubic curve is not moved to the border: only its elements are, as PyTorch and onnxruntime have it
        position = position if mode == "cubic" else self._padded(position)
        below = whole(position)
        if mode == "nearest":
            return [self._tap(below)]
        fraction = sub(position, cast(below, position.dtype))
        if mode == "linear":
            weights = [sub(1.0, fraction), fraction]
            return [self._tap(add(below, n), w) for n, w in enumerate(weights)]
        return [self._tap(add(below, n - 1), w) for n, w in enumerate(cubic_weights(fraction, CUBIC))]

    def _position(self, coordinate: Expr) -> Expr:
        """From -1 .. 1 to the element's own numbers."""
        if self.align_corners:
            return mul(div(add(coordinate, 1.0), 2.0), integer(self.extent - 1, coordinate.dtype))
        return div(sub(mul(add(coordinate, 1.0), integer(self.extent, coordinate.dtype)), 1.0), 2.0)

    def _borders(self, like: Expr) -> tuple[Expr, Expr]:
        last = integer(self.extent - 1, like.dtype)
        if self.align_corners:
            return integer(0, like.dtype), last
        return sub(integer(0, like.dtype), 0.5), add(last, 0.5)

    def _padded(self, position: Expr) -> Expr:
        if self.padding == "zeros":
            return position
        if self.padding == "reflection":
            return self._reflected(position)
        least, most = self._borders(position)
        outside = call("or", call("lt", position, least), call("gt", position, most))
        last = integer(self.extent - 1, position.dtype)
        return select(outside, maximum(minimum(position, last), 0.0), position)

    def _reflected(self, position: Expr) -> Expr:
        least, most = self._borders(position)
        width = sub(most, least)
        below, above = call("lt", position, least), call("gt", position, most)
        beyond = select(below, sub(least, position), sub(position, most))
        turns = call("floor", div(beyond, width))
        rest = sub(beyond, mul(turns, width))
        is_odd = call("ne", sub(turns, mul(call("floor", mul(turns, 0.5)), 2.0)), 0.0)
        found = select(call("xor", below, is_odd), add(least, rest), sub(most, rest))
        found = select(call("or", below, above), found, position)
        # an axis of one element has nowhere to turn
        return select(call("gt", width, 0.0), found, least)

    def _tap(self, position: Expr, weight: Expr | None = None) -> Tap:
        if self.padding == "zeros":
            return Tap(weight, clamped(position, self.extent), is_inside(position, self.extent))
        if self.padding == "reflection":
            turned = self._reflected(cast(position, weight.dtype)) if weight is not None else None
            position = position if turned is None else cast(turned, INT64)
        return Tap(weight, clamped(position, self.extent))


OP = Operator("GridSample", infer, lower, kind="gather", dtypes=NUMBERS)
