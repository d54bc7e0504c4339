"""Sliding groups: a product and the depthwise window over its result, a block of channels and a few rows at a
time, so that what lies between them never leaves the cache.

    axes    image, half of the rows, block of channels
    step    the last rows of the step before move to the front; a half that follows another computes them
            product over (column, channel of the block), for each new row:  rows[row, column, channel]
            window over (row, column, channel of the block):  y

The buffer of rows has its padding in it, so the window tests nothing. Nothing is computed twice but the few
rows that the second half needs from before its own: threads that share rows find what they read in their own
caches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum, minimum
from cuvil_build.kernel.draft import rewrite
from cuvil_build.kernel.expr import INNER, Apply, Buffer, Const, Expr, Load, Within
from cuvil_build.kernel.group import Group, Part, Walk
from cuvil_build.kernel.group_axes import substitute
from cuvil_build.kernel.group_region import fresh_prefix
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Axis, Nest, Stage
from cuvil_build.kernel.sliding_match import Pair, find_pair
from cuvil_build.kernel.sliding_plan import CHANNELS, Steps, plan_steps

_ORDER = (1, 2, 0)
"""Of the buffer of rows: channels, rows, columns, with channels last in memory."""


def slide_nests(region: LoweredRegion) -> LoweredRegion:
    """The region with sliding groups wherever a depthwise window follows the product that it reads."""
    while True:
        found = next(_pairs(region), None)
        if found is None:
            return region
        number, pair, steps = found
        nests = (*region.nests[:number], *_groups(pair, steps), *region.nests[number + 2 :])
        inner = tuple(b for b in region.inner if b.name != pair.between.name)
        region = replace(region, nests=nests, inner=inner)


def _pairs(region: LoweredRegion) -> Iterator[tuple[int, Pair, Steps]]:
    private = {b.name for b in region.inner}
    for number, (first, second) in enumerate(zip(region.nests, region.nests[1:])):
        if not isinstance(first, Nest) or not isinstance(second, Nest):
            continue
        pair = find_pair(first, second)
        if pair is None or pair.between.name not in private or _is_read_elsewhere(region, pair, number):
            continue
        steps = plan_steps(pair.rows, pair.columns, pair.channels, pair.between.dtype.nbytes)
        if steps is not None:
            yield number, pair, steps


def _is_read_elsewhere(region: LoweredRegion, pair: Pair, number: int) -> bool:
    others = (nest for n, nest in enumerate(region.nests) if n not in (number, number + 1))
    return any(b.name == pair.between.name for nest in others for b in nest.buffers())


def _groups(pair: Pair, steps: Steps) -> list[Group]:
    """Whole blocks of channels, and what is left of them."""
    blocks, rest = divmod(pair.channels, CHANNELS)
    found = [_Builder(pair, steps, 0, blocks, CHANNELS).group()] if blocks else []
    if rest:
        found.append(_Builder(pair, steps, blocks * CHANNELS, 1, rest).group())
    return found


class _Builder:
    """The group of some blocks of channels, `width` each, from channel `first` on."""

    def __init__(self, pair: Pair, steps: Steps, first: int, blocks: int, width: int) -> None:
        self._pair = pair
        self._steps = steps
        self._first = first
        self._width = width
        prefix = fresh_prefix((pair.producer, pair.window))
        names = (f"{prefix}{n}" for n in itertools.count())
        images = [] if pair.batch is None else [_extent(pair.producer, pair.batch[0])]
        self._images = tuple(Axis(next(names), extent) for extent in images)
        self._blocks = Axis(next(names), IntExpr.of(blocks))
        self._halves = Axis(next(names), IntExpr.of(steps.halves))
        self._walk = Axis(next(names), steps.count // steps.halves)
        half, walked = IntExpr.of(self._halves.name), IntExpr.of(self._walk.name)
        if steps.halves == 1:
            half = ZERO
        self._step = half * self._walk.extent + walked
        self._new = Axis(next(names), steps.new(self._step))
        self._first_step = Axis(next(names), 1 - minimum(1, walked))
        self._later_steps = Axis(next(names), minimum(1, walked))
        is_cut = maximum(0, minimum(1, half) - minimum(1, walked))
        self._before = Axis(next(names), is_cut * steps.kept if steps.halves > 1 else ZERO)
        self._row, self._taps = IntExpr.of(next(names)), IntExpr.of(next(names))
        self._buffer = self._rows_buffer(next(names))
        self._part = self._weights_part(next(names))

    def group(self) -> Group:
        rows: list[tuple[Nest, Axis | None]] = [
            (self._clear(), self._first_step),
            (self._move(), self._later_steps),
            (self._produced(self._before, 0), self._before),
            (self._produced(self._new, self._steps.kept), self._new),
            (self._clear_behind(), None),
            (self._windowed(), None),
        ]
        rows = [
            (nest, repeat)
            for nest, repeat in rows
            if not any(a.extent == ZERO for a in (*nest.axes, *([repeat] if repeat else [])))
        ]
        nodes = (*self._pair.producer.nodes, *self._pair.window.nodes)
        return Group(
            "sliding",
            (*self._images, *([self._halves] if self._steps.halves > 1 else []), self._blocks),
            tuple(nest for nest, _ in rows),
            (self._buffer,),
            tuple(dict.fromkeys(nodes)),
            Walk(self._walk, tuple(repeat for _, repeat in rows), self._places()),
            (self._part,),
        )

    def _places(self) -> tuple[tuple[str, IntExpr], ...]:
        """The window's first row in a step, and where in the buffer its taps begin."""
        first, taps = self._steps.first(self._step), self._steps.taps_from(self._step)
        return (str(self._row), first), (str(self._taps), taps)

    def _rows_buffer(self, name: str) -> Buffer:
        columns = self._pair.columns
        width = ONE if columns is None else columns.source + columns.pad + columns.pad_after
        shape = (IntExpr.of(self._width), self._steps.rows, width)
        return Buffer(name, self._pair.between.dtype, shape, _ORDER, INNER)

    def _weights_part(self, name: str) -> Part:
        load = self._pair.weights
        dim = load.index.index(IntExpr.of(self._pair.channel[0]))
        shape = tuple(IntExpr.of(self._width) if d == dim else n for d, n in enumerate(load.buffer.shape))
        block = replace(load.buffer, name=name, shape=shape)
        return Part(load.buffer, block, dim, self._first, self._blocks.name)

    # Nests ---------------------------------------------------------------------------------------

    def _clear(self) -> Nest:
        """All of the buffer, which is what the padding stays."""
        return self._cleared(ZERO, self._buffer.shape[1])

    def _clear_behind(self) -> Nest:
        """Behind the last row, where rows of the step before lie; none do if all steps are as long."""
        if self._new.extent == IntExpr.of(self._steps.block):
            return self._cleared(ZERO, ZERO)
        start = self._steps.slide.source - self._step * self._steps.block + self._steps.kept
        start = minimum(start, self._buffer.shape[1])
        return self._cleared(start, self._buffer.shape[1] - start)

    def _cleared(self, start: IntExpr, count: IntExpr) -> Nest:
        c, r, x = (IntExpr.of(n) for n in "crx")
        extents = (self._buffer.shape[0], count, self._buffer.shape[2])
        axes = tuple(Axis(n, extent) for n, extent in zip("crx", extents))
        zero = Const(0.0, self._buffer.dtype)
        return Nest("map", axes, (Stage((), "store", self._buffer, (c, r + start, x), zero),))

    def _move(self) -> Nest:
        """The rows that the next ones still need, to the front."""
        c, r, x = (IntExpr.of(n) for n in "crx")
        extents = (self._buffer.shape[0], IntExpr.of(self._steps.kept), self._buffer.shape[2])
        axes = tuple(Axis(n, extent) for n, extent in zip("crx", extents))
        value = Load(self._buffer, (c, r + self._steps.block, x))
        return Nest("copy", axes, (Stage((), "store", self._buffer, (c, r, x), value),))

    def _produced(self, rows: Axis, place: int) -> Nest:
        """One row of the product, in the buffer from `place` on; new ones lie behind those that are kept."""
        pair, channel = self._pair, IntExpr.of(self._pair.channel[0])
        at = IntExpr.of(rows.name) + place
        row = self._step * self._steps.block + (at - self._steps.kept)
        nest = self._placed(pair.producer, 0, {pair.row: row}, {pair.row})
        total, store = nest.stages
        column = ZERO if pair.column is None or pair.columns is None else (
            IntExpr.of(pair.column) + pair.columns.pad
        )  # fmt: skip
        index = (channel, at, column)
        store = replace(store, target=self._buffer, index=index)
        return replace(nest, stages=(total, store))

    def _windowed(self) -> Nest:
        """The rows of the window that can be computed now."""
        pair, steps = self._pair, self._steps
        row = self._row + IntExpr.of(steps.slide.axis)
        nest = self._placed(pair.window, 1, {steps.slide.axis: row}, set())
        extents = {steps.slide.axis: steps.done(self._step)}
        axes = tuple(Axis(a.name, extents.get(a.name, a.extent)) for a in nest.axes)
        total, store = nest.stages
        value = total.value
        assert isinstance(value, Apply)
        factors = tuple(map(self._tap, value.args))
        total = replace(total, value=Apply(value.function, factors, value.dtype))
        return replace(nest, axes=axes, stages=(total, store))

    def _tap(self, factor: Expr) -> Expr:
        """Where the window reads the producer's result, it reads the buffer of rows."""
        load = factor.value if isinstance(factor, Within) else factor
        if not isinstance(load, Load) or load.buffer.name != self._pair.between.name:
            return factor
        steps, columns = self._steps, self._pair.columns
        row = load.index[2]
        assert isinstance(row, IntExpr)
        passed = self._row * steps.slide.stride - steps.slide.pad
        index = [IntExpr.of(self._pair.channel[1]), row - passed + self._taps, ZERO]
        if columns is not None:
            column = load.index[3]
            assert isinstance(column, IntExpr)
            index[2] = column + columns.pad
        return Load(self._buffer, tuple(index))

    def _placed(self, nest: Nest, side: int, rows: Mapping[str, IntExpr], gone: set[str]) -> Nest:
        """A nest at one point of the group, with the parts of the constants that this one has."""
        channel = self._pair.channel[side]
        values = dict(rows)
        values[channel] = IntExpr.of(self._blocks.name) * self._width + (IntExpr.of(channel) + self._first)
        if self._pair.batch is not None:
            values[self._pair.batch[side]] = IntExpr.of(self._images[0].name)
            gone = gone | {self._pair.batch[side]}
        extents = {channel: IntExpr.of(self._width)}
        axes = tuple(Axis(a.name, extents.get(a.name, a.extent)) for a in nest.axes if a.name not in gone)
        placed = substitute(replace(nest, axes=axes, nodes=()), values)
        memo: dict[int, Expr] = {}
        stages = (replace(s, value=rewrite(s.value, None, self._constant, memo)) for s in placed.stages)
        return replace(placed, stages=tuple(stages))

    def _constant(self, load: Load) -> Expr:
        """The product's weights are a part that is packed for it."""
        if load.buffer.name == self._part.whole.name:
            channel = IntExpr.of(self._pair.channel[0])
            index = tuple(channel if d == self._part.dim else i for d, i in enumerate(load.index))
            return Load(self._part.block, index)
        return load


def _extent(nest: Nest, name: str) -> IntExpr:
    return next(a.extent for a in nest.axes if a.name == name)
