"""Kernels of another member of a list of targets: tiles of its own, and all that callers see the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cuvil_build.codegen.kernels import EmittedKernel, Kernel, emit_by, emit_kernel
from cuvil_build.codegen.plan import KernelSpec
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.schedule_values import NestSchedule
from cuvil_build.kernel.tile_schedule import TileSchedule

_Schedules = Mapping[int, NestSchedule]


def source_alike(nest: Kernel, first: EmittedKernel, numbers: Numbers, member: Numbers) -> str:
    """The C text with the member's own tiles, under the first's symbol; empty where the first's text must do.

    The module's tables are the first's: chunks, packed weights and scratch must be as they say.
    """
    for schedules, same_chunks in _attempts(nest, first, member):
        spec, packings = emit_by(nest, numbers, schedules)
        if (same_chunks or spec.chunks == first.spec.chunks) and _is_alike(spec, packings, first):
            return spec.source.replace(spec.symbol, first.spec.symbol)
    return ""


def _attempts(nest: Kernel, first: EmittedKernel, member: Numbers) -> Iterator[tuple[_Schedules, bool]]:
    """Schedules by part, and whether they are known to make as many chunks as the first's."""
    own = emit_kernel(nest, None, numbers=member)
    taller = {
        number: (theirs.schedule, mine.schedule.row_tile)
        for number, (mine, theirs) in enumerate(zip(own.parts, first.parts, strict=True))
        if isinstance(mine.schedule, TileSchedule)
        and isinstance(theirs.schedule, TileSchedule)
        and not theirs.is_tuned
        and mine.schedule.vectors == theirs.schedule.vectors
        and mine.schedule.row_tile != theirs.schedule.row_tile
    }
    if not taller:
        return
    others = {n: p.schedule for n, p in enumerate(first.parts) if p.schedule is not None}
    for up in (False, True):
        fitted = {n: _fitted(theirs, rows, up) for n, (theirs, rows) in taller.items()}
        # ceil(ceil(n / tile) / (block / tile)) is ceil(n / block) where tiles divide the block
        yield (
            others | fitted,
            all(fitted[n].rows_per_block == t.rows_per_block for n, (t, _) in taller.items()),
        )


def _fitted(theirs: TileSchedule, rows: int, up: bool) -> TileSchedule:
    """Their schedule with tiles of other rows: as many of them as a block has rows for, or one more."""
    tiles = (theirs.rows_per_block + (rows - 1 if up else 0)) // rows
    return replace(theirs, row_tile=rows, rows_per_block=max(1, tiles) * rows)


def _is_alike(spec: KernelSpec, packings: Mapping[str, Packing], first: EmittedKernel) -> bool:
    return (
        packings == first.packings
        and _is_within(spec.scratch, first.spec.scratch)
        and spec.stack <= first.spec.stack
    )


def _is_within(bytes_: IntExpr, given: IntExpr) -> bool:
    return bytes_ == given or (bytes_.is_static and given.is_static and bytes_.value <= given.value)
