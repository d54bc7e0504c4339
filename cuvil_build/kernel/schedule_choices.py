"""Which schedules a nest can have: the one that is chosen for it, and those that are right for it as well.

Every one of them gives a right kernel, whatever the sizes; which is fastest depends on the machine. One
that comes from outside is taken only where it is one of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.cost import schedules_along
from cuvil_build.kernel.flat import FlatNest, flatten
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.schedule import Schedule
from cuvil_build.kernel.schedule_values import NestSchedule, changed_fields
from cuvil_build.kernel.tile_cost import candidates, predict
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
    """What the cost model thinks of as well, and other shapes of tiles; in the order of predicted cycles."""
    usual = choose_tiles(found, numbers)
    shapes = () if found.blocks else _shapes(usual, numbers)
    possible = dict.fromkeys((*candidates(found, numbers), *shapes))
    others = sorted((s for s in possible if s != usual), key=lambda s: predict(found, s, numbers))
    return Choices(usual, tuple(others))


def _shapes(usual: TileSchedule, numbers: Numbers) -> Iterator[TileSchedule]:
    """Rows and vectors of tiles that registers hold, with sums enough to hide half of the latency."""
    tiles = usual.rows_per_block // usual.row_tile
    for vectors in range(1, 5):
        for rows in range(1, 13):
            scalars = rows if numbers.fma_broadcast == "lane" else 1
            fits = rows * vectors + vectors + scalars <= numbers.vector_registers
            if fits and 2 * rows * vectors >= numbers.fma_latency:
                yield replace(usual, row_tile=rows, vectors=vectors, rows_per_block=tiles * rows)


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
