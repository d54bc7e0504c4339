"""The three nests of a convolution by Winograd's algorithm: input transform, product, output transform.

    v[point, tile, channel]   = sum of input[a, i] * input[b, j] * x[...]     a patch of points x points
    m[point, tile, channel'] = sum of v[point, tile, channel] * u[point, channel, channel']
    y[...]                    = epilogue of the sum of output[row % m, a] * output[column % m, b] * m[...]

The maps' numbers are part of the expressions. `u` are the weights, transformed when they are packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from cuvil_build.cuir.dtypes import FLOAT32, INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, minimum, product
from cuvil_build.kernel.draft import rewrite
from cuvil_build.kernel.expr import INNER, Apply, Buffer, Const, Expr, IndexValue, Load, apply
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.nest import Axis, Nest, Stage
from cuvil_build.kernel.view import within
from cuvil_build.kernel.winograd_find import Convolution, Line, names_of
from cuvil_build.kernel.winograd_maps import Maps, maps

LINE_FLOATS = 16
"""Between the points of a buffer: else all of them would share the few places of one set of a cache."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What one point of a group has."""

    axis: str
    """Of the tile rows' line, or a batch axis; others are whole."""
    steps: int
    """Tile rows or entries of the batch axis."""


def winograd_nests(found: Convolution, outputs: int, buffers: tuple[str, str]) -> tuple[Nest, Nest, Nest]:
    """One after the other; `buffers` are names for what lies between them, in the roles of inner buffers."""
    return _Writer(found, maps(outputs, found.stride), buffers, None).nests()


def winograd_group(found: Convolution, outputs: int, buffers: tuple[str, str], cut: Cut) -> Group:
    """All three for each block of tile rows, or of images."""
    return _Writer(found, maps(outputs, found.stride), buffers, cut).group()


def number_at(values: Sequence[Fraction], index: IntExpr) -> Expr:
    """One of a few numbers, as an expression."""
    found: Expr = Const(float(values[-1]), FLOAT32)
    for position, value in list(enumerate(values))[-2::-1]:
        is_here = apply("eq", IndexValue(index), Const(position, INT64))
        found = Apply("select", (is_here, Const(float(value), FLOAT32), found), FLOAT32)
    return found


class _Writer:
    def __init__(
        self, found: Convolution, algorithm: Maps, buffers: tuple[str, str], cut: Cut | None
    ) -> None:
        self._found = found
        self._maps = algorithm
        self._points = IntExpr.of(algorithm.points)
        names = _fresh(found.nest, ("g", "a", "b", "i", "j", "r", "c"))
        self._names = names
        self._cut = cut
        self._tiles = {
            line.axis.name: ceil_divide(line.axis.extent, algorithm.outputs)
            for line in (found.rows, found.columns)
        }
        self._axes = self._outer_axes()
        self._first = self._starts()
        self._v = self._buffer(buffers[0], found.channel.extent)
        self._m = self._buffer(buffers[1], found.result_channel.extent)

    def nests(self) -> tuple[Nest, Nest, Nest]:
        return self._input(), self._product(), self._output()

    def group(self) -> Group:
        nests = tuple(replace(n, nodes=()) for n in self.nests())
        return Group("window", self._axes, nests, (self._v, self._m), self._found.nest.nodes)

    # Axes ----------------------------------------------------------------------------------------

    def _outer_axes(self) -> tuple[Axis, ...]:
        """Of the group: batch axes that are not whole in a point, and the blocks of the axis that is cut."""
        if self._cut is None:
            return ()
        rows = self._found.rows.axis.name
        extents = {a.name: a.extent for a in self._found.batch} | {rows: self._tiles[rows]}
        blocks = ceil_divide(extents[self._cut.axis], self._cut.steps)
        before = [a for a in self._found.batch if self._cut.axis == rows or not self._is_inside(a)]
        found = [Axis(f"{self._names['g']}{n}", a.extent) for n, a in enumerate(before) if a.extent != ONE]
        return (*found, Axis(f"{self._names['g']}{len(found)}", blocks))

    def _is_inside(self, axis: Axis) -> bool:
        """Whether a batch axis is the one that is cut, or faster."""
        assert self._cut is not None
        order = [a.name for a in self._found.batch]
        return order.index(axis.name) >= order.index(self._cut.axis)

    def _starts(self) -> Mapping[str, IntExpr]:
        """What the group's point adds to a batch axis or, in tiles, to the rows; and which axes it fixes."""
        found: dict[str, IntExpr] = {}
        if self._cut is None:
            return found
        rows = self._found.rows.axis.name
        outer = iter(self._axes)
        for axis in self._found.batch:
            if axis.name != self._cut.axis and (self._cut.axis == rows or not self._is_inside(axis)):
                found[axis.name] = ZERO if axis.extent == ONE else IntExpr.of(next(outer).name)
        found[self._cut.axis] = IntExpr.of(next(outer).name) * self._cut.steps
        return found

    def _batch(self) -> tuple[Axis, ...]:
        """The batch axes that the nests loop over themselves."""
        if self._cut is None:
            return self._found.batch
        kept = [a for a in self._found.batch if a.name not in self._first or a.name == self._cut.axis]
        return tuple(replace(a, extent=self._block(a.name, a.extent)) for a in kept)

    def _block(self, axis: str, extent: IntExpr) -> IntExpr:
        """Steps of an axis at a point."""
        if self._cut is None or axis != self._cut.axis:
            return extent
        if extent.is_static and extent.value % self._cut.steps == 0:
            return IntExpr.of(self._cut.steps)
        return minimum(self._cut.steps, extent - self._first[axis])

    def _most(self, axis: str, extent: IntExpr) -> IntExpr:
        """Of the steps at any point."""
        if self._cut is None or axis != self._cut.axis:
            return extent
        return minimum(self._cut.steps, extent) if extent.is_static else IntExpr.of(self._cut.steps)

    def _moved(self, axis: str) -> IntExpr:
        """A batch axis as the whole convolution counts it."""
        if axis not in self._first:
            return IntExpr.of(axis)
        start = self._first[axis]
        return start + IntExpr.of(axis) if self._cut is not None and axis == self._cut.axis else start

    # Buffers -------------------------------------------------------------------------------------

    def _buffer(self, name: str, channels: IntExpr) -> Buffer:
        """[point][tile][channel], in which only points are apart where the tiles are known."""
        rows, columns = self._found.rows.axis.name, self._found.columns.axis.name
        batch = [self._most(a.name, a.extent) for a in self._batch()]
        height, width = self._most(rows, self._tiles[rows]), self._tiles[columns]
        points = self._points * self._points
        shape: tuple[IntExpr, ...] = (points, *batch, height, width, channels)
        if self._is_flat:
            shape = (points, product(shape[1:]) + LINE_FLOATS)
        return Buffer(name, FLOAT32, shape, tuple(range(len(shape))), INNER)

    @property
    def _is_flat(self) -> bool:
        names = (self._found.rows.axis.name, self._found.columns.axis.name)
        inner = [a.extent for a in self._batch()[1:]]
        return all(self._tiles[n].is_static for n in names) and all(e.is_static for e in inner)

    def _element(
        self, buffer: Buffer, point: IntExpr, row: IntExpr, column: IntExpr, channel: Axis, name: str
    ) -> tuple[IntExpr, ...]:
        batch = [IntExpr.of(a.name) for a in self._batch()]
        if not self._is_flat:
            return (point, *batch, row, column, IntExpr.of(name))
        rows, columns = self._found.rows.axis.name, self._found.columns.axis.name
        height, width = self._most(rows, self._tiles[rows]), self._tiles[columns]
        tile = ZERO
        for index, axis in zip(batch, self._batch(), strict=True):
            tile = tile * self._most(axis.name, axis.extent) + index
        tile = (tile * height + row) * width + column
        return (point, tile * channel.extent + IntExpr.of(name))

    # Nests ---------------------------------------------------------------------------------------

    def _input(self) -> Nest:
        found, names = self._found, self._names
        row, column = IntExpr.of(f"{names['r']}0"), IntExpr.of(f"{names['r']}1")
        a, b, i, j = (IntExpr.of(names[n]) for n in "abij")
        size = self._maps.outputs
        rows, columns = found.rows, found.columns
        first = self._first.get(rows.axis.name, ZERO)
        places = {rows.axis.name: (first + row) * size, columns.axis.name: column * size}
        values = places | {rows.tap: i, columns.tap: j}
        values |= {x.name: self._moved(x.name) for x in found.batch}
        index = tuple(e.substitute(values) for e in found.source.index if isinstance(e, IntExpr))
        conditions = [
            (line.valid[0], places[line.axis.name] * line.stride + tap, line.valid[1])
            for line, tap in ((rows, i), (columns, j))
            if not self._is_always_valid(line)
        ]
        value = within(conditions, Load(found.source.buffer, index), Const(0.0, FLOAT32))
        matrix = self._maps.input
        left, right = _entry(matrix, a, i, self._maps.points), _entry(matrix, b, j, self._maps.points)
        axes = (
            Axis(names["a"], self._points),
            Axis(names["b"], self._points),
            *self._batch(),
            Axis(str(row), self._block(rows.axis.name, self._tiles[rows.axis.name])),
            Axis(str(column), self._tiles[columns.axis.name]),
            found.channel,
        )
        point = a * self._points + b
        target = self._element(self._v, point, row, column, found.channel, found.channel.name)
        return self._transform(axes, left, right, value, self._v, target, None)

    def _is_always_valid(self, line: Line) -> bool:
        low, high = line.valid
        last = (self._tiles[line.axis.name] - 1) * (self._maps.outputs * line.stride)
        past = last + self._maps.points
        return low == ZERO and (high - past).is_static and (high - past).value >= 0

    def _transform(
        self,
        axes: tuple[Axis, ...],
        left: Expr,
        right: Expr,
        value: Expr,
        target: Buffer,
        index: tuple[IntExpr, ...],
        result: Expr | None,
    ) -> Nest:
        total = self._total()
        summed = apply("mul", apply("mul", left, right), value)
        taps = (Axis(self._names["i"], self._points), Axis(self._names["j"], self._points))
        stages = (
            Stage(taps, "sum", total, (), summed),
            Stage((), "store", target, index, result or Load(total, ())),
        )
        return Nest("map", axes, stages, (), self._found.nest.nodes)

    def _total(self) -> Buffer:
        """The convolution's own."""
        return self._found.nest.stages[0].target

    def _product(self) -> Nest:
        found, names = self._found, self._names
        row, column, point = (IntExpr.of(names["r"] + n) for n in "012")
        points = self._points * self._points
        shape = (points, found.channel.extent, found.result_channel.extent)
        size = self._maps.outputs
        weights = replace(
            found.weights, dtype=FLOAT32, shape=shape, order=(0, 1, 2), filter_tile=(size, found.stride)
        )
        channel, result = found.channel, found.result_channel
        factors = (
            Load(self._v, self._element(self._v, point, row, column, channel, channel.name)),
            Load(weights, (point, IntExpr.of(channel.name), IntExpr.of(result.name))),
        )
        axes = (
            Axis(str(point), points),
            *self._batch(),
            Axis(str(row), self._block(found.rows.axis.name, self._tiles[found.rows.axis.name])),
            Axis(str(column), self._tiles[found.columns.axis.name]),
            result,
        )
        total = self._total()
        stages = (
            Stage((channel,), "sum", total, (), apply("mul", *factors)),
            Stage(
                (),
                "store",
                self._m,
                self._element(self._m, point, row, column, result, result.name),
                Load(total, ()),
            ),
        )
        return Nest("contraction", axes, stages, (), found.nest.nodes)

    def _output(self) -> Nest:
        found, names, size = self._found, self._names, self._maps.outputs
        rows, columns = found.rows.axis, found.columns.axis
        row, column = IntExpr.of(rows.name), IntExpr.of(columns.name)
        i, j = IntExpr.of(names["i"]), IntExpr.of(names["j"])
        channel = found.result_channel
        point = i * self._points + j
        index = self._element(self._m, point, row // size, column // size, channel, channel.name)
        left = _entry(self._maps.output, row % size, i, self._maps.points)
        right = _entry(self._maps.output, column % size, j, self._maps.points)
        first = self._first.get(rows.name, ZERO) * size
        values = {rows.name: first + row} | {a.name: self._moved(a.name) for a in found.batch}
        kept = {a.name: a for a in (*self._batch(), channel, columns)}
        kept[rows.name] = replace(rows, extent=self._pixels(rows))
        axes = tuple(kept[a.name] for a in found.nest.axes if a.name in kept)
        epilogue = rewrite(found.store.value, lambda e: e.substitute(values), None, {})
        target = tuple(e.substitute(values) for e in found.store.index)
        return self._transform(axes, left, right, Load(self._m, index), found.store.target, target, epilogue)

    def _pixels(self, rows: Axis) -> IntExpr:
        """Rows of the result at a point."""
        if self._cut is None or self._cut.axis != rows.name:
            return rows.extent
        block = self._cut.steps * self._maps.outputs
        if rows.extent.is_static and rows.extent.value % block == 0:
            return IntExpr.of(block)
        return minimum(block, rows.extent - self._first[rows.name] * self._maps.outputs)


def _entry(matrix: Sequence[Sequence[Fraction]], row: IntExpr, column: IntExpr, width: int) -> Expr:
    return number_at([value for line in matrix for value in line], row * width + column)


def _fresh(nest: Nest, letters: Sequence[str]) -> dict[str, str]:
    """Names that no symbol of the nest begins with."""
    taken = names_of(nest)
    prefix = "w"
    while any(name.startswith(prefix) for name in taken):
        prefix += "w"
    return {letter: prefix + letter for letter in letters}
