"""What the arena planner works on: blocks of bytes with a life, and where they end up."""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.int_expr import IntExpr

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector of any CPU target."""


@dataclass(frozen=True, slots=True)
class Block:
    """One value's storage, needed from the first to the last instruction, both included."""

    name: str
    nbytes: IntExpr
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Offsets are bytes from the start of the arena, multiples of ALIGNMENT."""

    offsets: dict[str, IntExpr]
    """By block; a number, or the name of a definition."""
    definitions: tuple[tuple[str, IntExpr], ...]
    """Offsets that depend on free dims, in order: each over the dims and earlier definitions."""
    arena: IntExpr
    """Bytes in all, over the dims and definitions."""
    lower_bound: int
    """Bytes that are alive at once at the reference sizes, at worst: no plan can be smaller."""
    reference_arena: int
    """The arena at the reference sizes."""


def aligned(nbytes: IntExpr) -> IntExpr:
    """Rounded up to ALIGNMENT."""
    return (nbytes + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
