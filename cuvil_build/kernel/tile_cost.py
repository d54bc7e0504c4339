"""What a schedule of a product costs, in cycles, and which other schedules are worth a try."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.tile_product import Product
from cuvil_build.kernel.tile_schedule import TileSchedule, choose_tiles

_TYPICAL = 128
"""For sizes that are free."""
_LOADS = 2
"""Loads of a cycle."""
_TILE = 25.0
"""Cycles of a pass over a tile beside its multiply-adds: loops, row pointers, the wrong guess where the
innermost loop ends, and the last sums to come in."""
_NEAR, _FAR = 32.0, 8.0
"""Bytes of a cycle from the second-level cache, and from beyond it."""
_SHOWN = 0.15
"""Part of the time for bytes that arithmetic does not hide where hardware foresees them."""
_FIRST = 0.5
"""The same where a panel is met for the first time and nothing has fetched it."""


def predict(found: Product, schedule: TileSchedule, numbers: Numbers) -> float:
    """Cycles of one thread for the whole product; sizes that are free count as typical ones."""
    itemsize = found.panel_bytes
    rows, depth = max(1, _size(found.row_count)), max(1, _size(found.depth))
    columns, batches = max(1, _size(found.column.extent)), _size(found.batches)
    for axis in found.repeats:
        batches *= _size(axis.extent)
    tiles = -(-rows // schedule.row_tile)
    blocks = -(-rows // schedule.rows_per_block)
    panels = -(-columns // schedule.width)
    steps = min(depth, schedule.k_slice or depth)
    slices = -(-depth // steps)
    passes = tiles * panels * slices
    sums = rows / tiles * schedule.vectors
    arithmetic = tiles * panels * depth * _step(sums, rows / tiles, schedule, numbers)
    if found.is_integer or found.blocks:
        arithmetic *= numbers.dot_operations / schedule.group
    around = passes * _TILE + tiles * panels * (2 * slices - 1) * sums
    slice_bytes = steps * schedule.width * itemsize
    near = 0.0
    if slice_bytes * (2 if schedule.prefetch else 1) > numbers.l1 * 3 // 4:
        near = passes * slice_bytes / _NEAR * _SHOWN
    far = blocks * depth * panels * schedule.width * itemsize / _FAR
    block_bytes = min(rows, schedule.rows_per_block) * depth * itemsize
    streamed = blocks * panels * block_bytes / _NEAR * _SHOWN if block_bytes > numbers.l2 else 0.0
    busy = arithmetic + around + near + streamed + (0.0 if schedule.prefetch else far * _FIRST)
    return batches * max(busy, far)


def candidates(found: Product, numbers: Numbers) -> tuple[TileSchedule, ...]:
    """The chosen schedule, then those that differ from it in one thing, most promising first."""
    chosen = choose_tiles(found, numbers)
    others = [s for s in dict.fromkeys(_varied(found, chosen, numbers)) if s != chosen]
    return (chosen, *sorted(others, key=lambda s: predict(found, s, numbers)))


def _varied(found: Product, chosen: TileSchedule, numbers: Numbers) -> Iterator[TileSchedule]:
    lanes, tiles = chosen.lanes, chosen.rows_per_block // chosen.row_tile
    if found.blocks:
        yield replace(chosen, prefetch=not chosen.prefetch)
        counts = (chosen.panels_per_chunk // 2, chosen.panels_per_chunk * 2)
        yield from (replace(chosen, panels_per_chunk=n) for n in counts if n)
        return
    whole = replace(chosen, k_slice=0, prefetch=False)
    yield whole
    yield replace(chosen, prefetch=not chosen.prefetch and found.constant_panel)
    if not found.is_integer:
        yield replace(chosen, fetch_rows=not chosen.fetch_rows)
    slice_bytes = chosen.width * found.panel_bytes
    for part in (4, 8 / 3, 2):
        steps = int(numbers.l1 / part / slice_bytes) // lanes * lanes
        if steps and (not found.depth.is_static or steps < found.depth.value):
            yield replace(chosen, k_slice=steps, prefetch=found.constant_panel)
    for count in (tiles // 2, tiles * 2):
        if count:
            yield replace(chosen, rows_per_block=count * chosen.row_tile)
    for rows in (chosen.row_tile - 1, chosen.row_tile - 2):
        if rows > 0:
            yield replace(chosen, row_tile=rows, rows_per_block=tiles * rows)
    for count in (chosen.panels_per_chunk // 2, chosen.panels_per_chunk * 2):
        if count:
            yield replace(chosen, panels_per_chunk=count)
    if chosen.unroll > 1:
        yield from (replace(chosen, unroll=count) for count in (2, 8))


def _step(sums: float, rows: float, schedule: TileSchedule, numbers: Numbers) -> float:
    """Cycles of one step of the reduction in a tile: too few sums wait for the latency of the last."""
    loads = schedule.vectors + (rows if numbers.fma_broadcast == "memory" else rows / schedule.lanes)
    return max(sums / numbers.fma_ports, numbers.fma_latency, loads / _LOADS)


def _size(extent: IntExpr) -> int:
    return extent.value if extent.is_static else _TYPICAL
