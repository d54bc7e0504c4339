"""Line groups: a convolution that reads planes of few channels, a line of its output at a time.

    axes    image, line
    copy    over (channel, tap, column):  lines[channel, tap, column], with the padding
    window  over (column, output channel):  y, a product whose rows are at fixed steps of one pointer

Taps along a line are few neighbours in memory: gathered for each output by themselves they would be copied as
often as there are taps, a few elements at a time.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, product
from cuvil_build.kernel.expr import INNER, Apply, Buffer, Const, Expr, Load, Within
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.group_axes import substitute
from cuvil_build.kernel.group_region import fresh_prefix
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Axis, Nest, Stage
from cuvil_build.kernel.tile_operand import Operand
from cuvil_build.kernel.tile_product import Product, find_product
from cuvil_build.kernel.tile_schedule import SHORT

MOST_BYTES = 128 * 1024
"""Of lines: half of a common second-level cache, since lowering knows no target."""
_TYPICAL = 256
"""Assumed for a free extent."""


def read_lines(region: LoweredRegion) -> LoweredRegion:
    """The region with line groups for convolutions of few channels."""
    return replace(
        region, nests=tuple(_line_group(n) or n if isinstance(n, Nest) else n for n in region.nests)
    )


@dataclass(frozen=True, slots=True)
class _Tap:
    """One dim of what the window reads: `stride * axis + step * tap - pad`."""

    axis: str
    tap: Axis
    reach: IntExpr
    """From the first element that a line's outputs read to behind the last, padding included."""
    pad: IntExpr


def _line_group(nest: Nest) -> Group | None:
    found = find_product(nest)
    if found is None or not found.constant_panel or found.batch or found.streamed.value is not None:
        return None
    if found.is_integer:
        return None  # their rows are packed anyway
    load = found.streamed.load
    if len(load.index) != 4 or load.buffer.strides()[3] != ONE:
        return None
    by_dim = [_names(load.index[d]) for d in range(4)]
    taps = {a.name: a for a in found.reduction}
    image, row, column = (sorted(by_dim[d] - set(taps)) for d in (0, 2, 3))
    rows = [a.name for a in found.rows]
    if len(image) > 1 or len(row) != 1 or len(column) != 1 or sorted(image + row + column) != sorted(rows):
        return None
    across = _tap(nest, found, 3, column[0])
    if across is None or not _is_padded(found.streamed) or not _is_short(across.tap):
        return None
    if load.index[1] != ZERO and str(load.index[1]) not in taps:
        return None
    if image and load.index[0] != IntExpr.of(image[0]):
        return None
    if by_dim[1] & by_dim[2] or len(by_dim[2] & set(taps)) > 1 or (not image and load.index[0] != ZERO):
        return None
    builder = _Builder(nest, found, across, row[0], image[0] if image else None)
    return builder.group() if builder.is_worth() else None


def _names(index: object) -> set[str]:
    return set(index.symbols()) if isinstance(index, IntExpr) else {"?", "?gathered"}


def _is_short(axis: Axis) -> bool:
    return axis.extent.is_static and 1 < axis.extent.value < SHORT


def _tap(nest: Nest, found: Product, dim: int, axis: str) -> _Tap | None:
    at = found.streamed.load.index[dim]
    assert isinstance(at, IntExpr)
    stride, rest = at.split(axis)
    names = sorted(rest.symbols())
    taps = [a for a in found.reduction if a.name in names]
    if stride is None or not stride.is_static or stride.value < 1 or len(taps) != 1 or len(names) != 1:
        return None
    step, rest = rest.split(taps[0].name)
    if step is None or not step.is_static or step.value < 1 or not rest.is_static or rest.value > 0:
        return None
    extent = next(a.extent for a in nest.axes if a.name == axis)
    reach = (extent - 1) * stride + (step * (taps[0].extent - 1) + 1)
    return _Tap(axis, taps[0], reach, -rest)


def _is_padded(operand: Operand) -> bool:
    """Whether elements outside, and only these, are zero."""
    load = operand.load
    return all(
        any(c == (ZERO, load.index[d], load.buffer.shape[d]) for d in (2, 3)) for c in operand.conditions
    )


class _Builder:
    def __init__(self, nest: Nest, found: Product, across: _Tap, row: str, image: str | None) -> None:
        self._nest = nest
        self._found = found
        self._across = across
        prefix = fresh_prefix((nest,))
        names = (f"{prefix}{n}" for n in itertools.count())
        extents = {a.name: a.extent for a in nest.axes}
        self._points = {name: Axis(next(names), extents[name]) for name in (image, row) if name}
        self._at = {name: IntExpr.of(axis.name) for name, axis in self._points.items()}
        load = found.streamed.load
        self._inside = [
            next((a for a in found.reduction if a.name in _names(load.index[dim])), None) for dim in (1, 2)
        ]
        shape = (*(ONE if a is None else a.extent for a in self._inside), across.reach)
        self._lines = Buffer(next(names), load.dtype, shape, (0, 1, 2), INNER)

    def is_worth(self) -> bool:
        count = product(self._lines.shape)
        known = count.evaluate(dict.fromkeys(count.symbols(), _TYPICAL))
        return known * self._lines.dtype.nbytes <= MOST_BYTES

    def group(self) -> Group:
        return Group(
            "group",
            tuple(self._points.values()),
            (self._copied(), self._windowed()),
            (self._lines,),
            self._nest.nodes,
        )

    def _copied(self) -> Nest:
        """What one line of the output reads, with its padding."""
        load, conditions = self._found.streamed.load, self._found.streamed.conditions
        axes = tuple(Axis(n, extent) for n, extent in zip("crx", self._lines.shape))
        index = tuple(IntExpr.of(a.name) for a in axes)
        inside = {a.name: i for a, i in zip(self._inside, index) if a is not None}
        moved = [self._placed(i, inside) for i in load.index[:3]]
        place = (*moved, index[2] - self._across.pad)
        by_index = {load.index[d]: place[d] for d in (2, 3)}
        value: Expr = Load(load.buffer, place)
        if conditions:
            outside = tuple((low, by_index[at], high) for low, at, high in conditions)
            value = Within(outside, value, Const(0.0, load.dtype))
        return Nest("copy", axes, (Stage((), "store", self._lines, index, value),))

    def _placed(self, index: object, inside: dict[str, IntExpr]) -> IntExpr:
        assert isinstance(index, IntExpr)
        return index.substitute(self._at | inside)

    def _windowed(self) -> Nest:
        nest = self._nest
        axes = tuple(a for a in nest.axes if a.name not in self._points)
        placed = substitute(replace(nest, axes=axes, nodes=()), self._at)
        total, store = placed.stages
        value = total.value
        assert isinstance(value, Apply)
        factors = tuple(map(self._factor, value.args))
        return replace(placed, stages=(replace(total, value=replace(value, args=factors)), store))

    def _factor(self, factor: Expr) -> Expr:
        load = factor.value if isinstance(factor, Within) else factor
        source = self._found.streamed.load
        if not isinstance(load, Load) or load.buffer != source.buffer:
            return factor
        column = load.index[3]
        assert isinstance(column, IntExpr)
        first = (ZERO if a is None else IntExpr.of(a.name) for a in self._inside)
        return Load(self._lines, (*first, column + self._across.pad))
