"""A schedule: the choices that turn a nest into loops, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSchedule:
    """Consecutive stages that run in the same loops."""

    first: int
    last: int
    """Inclusive."""
    vector: str | None = None
    """The stage axis along which values are vectors."""
    lanes: int = 1
    accumulators: int = 1
    """Vectors that a reduction sums into in turn, to hide the latency of additions."""
    abreast: int = 1
    """Vectors of an axis that a reduction keeps, whose sums run side by side."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Of a flat nest; axes are its own."""

    loops: tuple[str, ...]
    """Outer axes that carry nothing, outermost first, without `vector`."""
    parallel: int
    """So many of the leading loops are cut into chunks, one iteration each."""
    vector: str | None
    """The outer axis along which whole points are computed as vectors; the innermost loop."""
    lanes: int
    block: int
    """Steps of the vector axis in one chunk; 0: all."""
    groups: tuple[GroupSchedule, ...]
    guarded: bool
    """Whether a second version without conditions runs where all of them hold."""
    row_axis: str = ""
    """The last of `loops`, where neighbouring points of it are computed together."""
    rows: int = 1
    """So many of them."""
    chunk_rows: int = 1
    """Steps of the last parallel loop in one chunk."""
    halves: bool = False
    """Whether what fills no whole vector goes through narrower ones where nobody knows how much it is: code
    for them is worth it only where a step is dear."""


NARROWEST = 4
"""Elements: shorter vectors gain nothing over single steps, unless those are dear."""


def narrower(lanes: int) -> tuple[int, ...]:
    """Vectors for what fills no whole one, widest first: each has half as many lanes as the one before."""
    found = []
    while lanes // 2 >= NARROWEST:
        lanes //= 2
        found.append(lanes)
    return tuple(found)
