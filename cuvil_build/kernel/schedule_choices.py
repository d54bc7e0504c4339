"""Which schedules a nest can have: the one that is chosen for it, and those that are right for it as well.

Every one of them gives a right kernel, whatever the sizes; which is fastest depends on the machine. One
that comes from outside is taken only where it is one of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.cost import schedules_along
from cuvil_build.kernel.flat import FlatNest, flatten
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.schedule import Schedule
from cuvil_build.kernel.schedule_values import NestSchedule, changed_fields
from cuvil_build.kernel.tile_product import Product
from cuvil_build.kernel.tile_schedule import TileSchedule, choose_tiles

_ROWS = (6, 3, 8, 2, 4, 1)
_ACCUMULATORS = (8, 2, 4, 1)


@dataclass(frozen=True, slots=True)
class Choices:
    usual: NestSchedule
    """What is chosen without a tuning record."""
    others: tuple[NestSchedule, ...]
    """In an order that is worth trying: what is most likely to be faster comes first."""

    def why_unfit(self, schedule: NestSchedule) -> str:
        """Empty where the nest can have the schedule."""
        if schedule == self.usual or schedule in self.others:
            return ""
        if type(schedule) is not type(self.usual):
            return "it is for another kind of kernel"
        possible = (self.usual, *self.others)
        nearest = min(possible, key=lambda other: len(changed_fields(other, schedule)))
        wrong = changed_fields(nearest, schedule)
        told = ", ".join(f"{name} {new!r} (as in {old!r})" for name, (old, new) in wrong.items())
        return f"it is none of the {len(possible)} that are right for the kernel: {told}"


def tile_choices(found: Product, numbers: Numbers) -> Choices:
    usual = choose_tiles(found, numbers)
    others = dict.fromkeys(_other_tiles(found, usual, numbers))
    return Choices(usual, tuple(s for s in others if s != usual))


def _other_tiles(found: Product, usual: TileSchedule, numbers: Numbers) -> Iterator[TileSchedule]:
    """Other tiles within the registers, and, of the usual one, other blocks, chunks and loops; in turn."""
    tiles = usual.rows_per_block // usual.row_tile
    shapes = sorted(
        _shapes(numbers), key=lambda shape: abs(shape[0] * shape[1] - usual.row_tile * usual.vectors)
    )
    kinds = [
        [replace(usual, row_tile=r, vectors=v, rows_per_block=tiles * r) for r, v in shapes],
        [replace(usual, unroll=count) for count in (8, 1, 2, 4)],
        [
            replace(usual, rows_per_block=n * usual.row_tile)
            for n in (tiles // 2, tiles * 2, tiles // 4, 1)
            if n
        ],
        [
            replace(usual, panels_per_chunk=n)
            for n in (usual.panels_per_chunk // 2, usual.panels_per_chunk * 2)
            if n
        ],
    ]
    return _in_turn(kinds)


def _shapes(numbers: Numbers) -> Iterator[tuple[int, int]]:
    """Rows and vectors of tiles that registers hold, with sums enough to hide half of the latency."""
    for vectors in range(1, 5):
        for rows in range(1, 13):
            scalars = rows if numbers.fma_broadcast == "lane" else 1
            fits = rows * vectors + vectors + scalars <= numbers.vector_registers
            if fits and 2 * rows * vectors >= numbers.fma_latency:
                yield rows, vectors


def _in_turn(kinds: Sequence[Sequence[TileSchedule]]) -> Iterator[TileSchedule]:
    """The first of each, then the second of each: a search that ends early has tried all kinds."""
    return (s for row in zip_longest(*kinds) for s in row if s is not None)


def loop_choices(nest: Nest, numbers: Numbers) -> Choices:
    flat = flatten(nest, analyse(nest))
    usual, *along = schedules_along(flat, numbers)
    found: dict[Schedule, None] = {}
    for schedule in (usual, *along):
        found[schedule] = None
        found |= dict.fromkeys(_variations(flat, schedule, numbers))
    return Choices(usual, tuple(s for s in found if s != usual))


def _variations(flat: FlatNest, schedule: Schedule, numbers: Numbers) -> Iterator[Schedule]:
    """One thing changed at a time."""
    if schedule.vector is not None:
        yield from _lanes(flat, schedule)
    if schedule.row_axis:
        yield from (replace(schedule, rows=rows) for rows in _ROWS if rows < numbers.vector_registers)
        yield replace(schedule, row_axis="", rows=1)
    for number, group in enumerate(schedule.groups):
        if group.accumulators > 1:
            for count in _ACCUMULATORS:
                changed = replace(group, accumulators=count)
                groups = (*schedule.groups[:number], changed, *schedule.groups[number + 1 :])
                yield replace(schedule, groups=groups)
    yield replace(schedule, halves=not schedule.halves)
    if schedule.guarded and not schedule.row_axis:
        yield replace(schedule, guarded=False)
    yield from _chunks(schedule)


def _lanes(flat: FlatNest, schedule: Schedule) -> Iterator[Schedule]:
    """Two registers for each value, or half of one."""
    assert schedule.vector is not None
    extent = flat.axis(schedule.vector).extent
    for lanes in (schedule.lanes * 2, schedule.lanes // 2):
        fits = not extent.is_static or lanes <= extent.value
        if lanes > 1 and fits and schedule.block % lanes == 0:
            yield replace(schedule, lanes=lanes)


def _chunks(schedule: Schedule) -> Iterator[Schedule]:
    """Other parts for threads, which are other blocks for caches."""
    if schedule.block:
        least = 4 * schedule.lanes
        blocks = (schedule.block * 2, schedule.block // 2 // least * least)
        yield from (replace(schedule, block=b) for b in blocks if b)
    if schedule.parallel > 1 and not schedule.block:
        rows = (schedule.chunk_rows * 2, schedule.chunk_rows // 2)
        yield from (replace(schedule, chunk_rows=r) for r in rows if r)
