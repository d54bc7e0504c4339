"""Places blocks in one arena such that blocks that live at the same time never overlap.

Offsets are found by best fit at reference sizes, largest block first (the heuristic that Pisarchyk and
Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020, call greedy by size). Where sizes
depend on free dims, only the *order* of conflicting blocks is kept from that: each block then starts
where the highest conflicting block below it ends, which is right for every size of the dims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cuvil_build.cuir.int_expr import ZERO, IntExpr, maximum
from cuvil_build.memory.blocks import ALIGNMENT, Block, MemoryPlan, aligned
from cuvil_build.memory.bound import lower_bound


def plan_arena(blocks: Sequence[Block], sizes: Mapping[str, int]) -> MemoryPlan:
    """`sizes` are the reference values of all free dims (their maximum, or a typical size)."""
    movable = [b for b in blocks if b.nbytes.terms]
    # a size that is nothing at the reference sizes may be something at others: it has a place in the order
    concrete = {b.name: max(aligned(b.nbytes).evaluate(sizes), ALIGNMENT) for b in movable}
    at_reference = _fit(movable, concrete)
    definitions: tuple[tuple[str, IntExpr], ...] = ()
    offsets = {name: IntExpr.of(offset) for name, offset in at_reference.items()}
    if not all(b.nbytes.is_static for b in movable):
        offsets, definitions = _symbolic_offsets(movable, at_reference)
    arena = maximum(0, *(offsets[b.name] + aligned(b.nbytes) for b in _highest(movable, at_reference)))
    offsets |= {b.name: ZERO for b in blocks if not b.nbytes.terms}
    return MemoryPlan(
        offsets,
        definitions,
        arena,
        lower_bound(movable, concrete),
        max((at_reference[b.name] + concrete[b.name] for b in movable), default=0),
    )


def conflict(left: Block, right: Block) -> bool:
    """Whether both are alive at one instruction."""
    return left.first <= right.last and right.first <= left.last


def _fit(blocks: Sequence[Block], nbytes: Mapping[str, int]) -> dict[str, int]:
    order = sorted(blocks, key=lambda b: (-nbytes[b.name], b.first, b.name))
    placed: list[Block] = []
    offsets: dict[str, int] = {}
    for block in order:
        taken = sorted(
            (offsets[p.name], offsets[p.name] + nbytes[p.name]) for p in placed if conflict(p, block)
        )
        offsets[block.name] = _best_gap(taken, nbytes[block.name])
        placed.append(block)
    return offsets


def _best_gap(taken: Sequence[tuple[int, int]], nbytes: int) -> int:
    """Start of the smallest gap that holds `nbytes`, else the end of what is taken."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= nbytes and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, stop)
    return best[1] if best is not None else end


def _symbolic_offsets(
    blocks: Sequence[Block], at_reference: Mapping[str, int]
) -> tuple[dict[str, IntExpr], tuple[tuple[str, IntExpr], ...]]:
    """Longest paths over `conflicts and lies below at the reference sizes`."""
    order = sorted(blocks, key=lambda b: (at_reference[b.name], b.first, b.name))
    offsets: dict[str, IntExpr] = {}
    definitions: list[tuple[str, IntExpr]] = []
    for position, block in enumerate(order):
        below = [b for b in order[:position] if conflict(b, block)]
        offset = maximum(0, *(offsets[b.name] + aligned(b.nbytes) for b in _highest(below, at_reference)))
        if not offset.is_static:
            name = f"at{len(definitions)}"
            definitions.append((name, offset))
            offset = IntExpr.of(name)
        offsets[block.name] = offset
    return offsets, tuple(definitions)


def _highest(blocks: Sequence[Block], at_reference: Mapping[str, int]) -> list[Block]:
    """Those that no conflicting block lies above: only their ends can be the highest."""
    kept: list[Block] = []
    for block in sorted(blocks, key=lambda b: (-at_reference[b.name], -b.first, b.name)):
        if not any(conflict(block, above) for above in kept):
            kept.append(block)
    return kept
