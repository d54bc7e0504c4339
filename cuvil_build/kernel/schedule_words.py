"""A schedule in words, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from cuvil_build.kernel.schedule import GroupSchedule, Schedule
from cuvil_build.kernel.schedule_values import NestSchedule
from cuvil_build.kernel.tile_schedule import TileSchedule

_MODES = {
    "direct": "rows read where they lie",
    "indirect": "rows read tap by tap",
    "packed": "rows packed first",
}
_TOLD = frozenset("mode row_tile vectors lanes rows_per_block panels_per_chunk unroll".split())
"""Fields of tiles that have words of their own."""


def in_words(schedule: NestSchedule | None) -> str:
    if schedule is None:
        return "plain statements"
    told = _tiles(schedule) if isinstance(schedule, TileSchedule) else _loops(schedule)
    return ", ".join(told)


def _tiles(tiles: TileSchedule) -> Iterator[str]:
    yield f"tiles of {_count(tiles.row_tile, 'row')} x {_count(tiles.vectors, 'vector')} of {tiles.lanes}"
    yield _MODES.get(tiles.mode, f"rows {tiles.mode}")
    yield f"blocks of {_count(tiles.rows_per_block, 'row')}"
    yield f"{_count(tiles.panels_per_chunk, 'panel')} a chunk"
    if tiles.unroll > 1:
        yield f"{tiles.unroll} steps unrolled"
    for field in fields(tiles):
        if field.name not in _TOLD and (value := getattr(tiles, field.name)):
            yield f"{field.name.replace('_', ' ')} {value}"


def _loops(loops: Schedule) -> Iterator[str]:
    if loops.vector is not None:
        yield f"vectors of {loops.lanes} along {loops.vector}" + (" with half ones" if loops.halves else "")
    for group in loops.groups:
        if group.vector is not None:
            yield _stage(group)
    if loops.vector is None and all(group.vector is None for group in loops.groups):
        yield "one element at a time"
    if loops.row_axis:
        yield f"{loops.rows} steps of {loops.row_axis} at once"
    if loops.guarded:
        yield "borders apart"
    yield _chunks(loops)


def _stage(group: GroupSchedule) -> str:
    first = f"stage {group.first + 1}"
    stages = first if group.first == group.last else f"stages {group.first + 1} to {group.last + 1}"
    sums = f" in {group.accumulators} sums" if group.accumulators > 1 else ""
    return f"{stages} by vectors of {group.lanes} along {group.vector}{sums}"


def _chunks(loops: Schedule) -> str:
    parts = list(loops.loops[: loops.parallel])
    if parts and loops.chunk_rows > 1:
        parts[-1] = f"{loops.chunk_rows} steps of {parts[-1]}"
    if loops.block:
        parts.append(f"{loops.block} steps of {loops.vector}")
    return f"a chunk for each {' and '.join(parts)}" if parts else "one chunk"


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
