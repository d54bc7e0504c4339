"""Places blocks in one arena such that blocks that live at the same time never overlap.

Offsets are found at reference sizes (`memory.placement`). Where sizes depend on free dims, only the *order*
of conflicting blocks is kept from that: each block then starts where the highest conflicting block below it
ends, which is right for every size of the dims. Several reference sizes may give several orders. Then the
module computes the arena of each for the sizes of a call, and takes the offsets of the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ZERO, IntExpr, maximum, minimum
from cuvil_build.memory.blocks import ALIGNMENT, Block, MemoryPlan, aligned
from cuvil_build.memory.placement import BUDGET, conflict, place

_WORTH = 100
"""Another order is worth its code where it saves this part of the arena."""

Definitions = tuple[tuple[str, IntExpr], ...]
Sizes = Mapping[str, int]


def plan_arena(
    blocks: Sequence[Block], sizes: Sizes, others: Sequence[Sizes] = (), budget: int = BUDGET
) -> MemoryPlan:
    """`sizes` are the reference values of all free dims; `others` are further ones that calls may have."""
    movable = [b for b in blocks if b.nbytes.terms]
    offsets = {b.name: ZERO for b in blocks if not b.nbytes.terms}
    is_static = all(b.nbytes.is_static for b in movable)
    nbytes = [aligned_bytes(movable, point) for point in ([sizes] if is_static else [sizes, *others])]
    budgets = [budget, *[budget // 8] * len(others)]
    found = [place(movable, at_point, most) for at_point, most in zip(nbytes, budgets)]
    if is_static:
        offsets |= {name: IntExpr.of(offset) for name, offset in found[0].offsets.items()}
        return MemoryPlan(offsets, (), IntExpr.of(found[0].arena), found[0].bound, found[0].arena)
    stacks = _worth_having([_Stack.of(movable, placement.offsets) for placement in found], nbytes)
    chosen, definitions, arena = _chosen(stacks)
    reference = min(stack.arena_at(nbytes[0]) for stack in stacks)
    return MemoryPlan({**offsets, **chosen}, definitions, arena, found[0].bound, reference)


def aligned_bytes(blocks: Sequence[Block], sizes: Sizes) -> dict[str, int]:
    """What blocks take at these sizes. One that is nothing there may be something at others: it has a place
    in the order."""
    known = {nbytes: max(aligned(nbytes).evaluate(sizes), ALIGNMENT) for nbytes in {b.nbytes for b in blocks}}
    return {b.name: known[b.nbytes] for b in blocks}


# One order, for all sizes ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stack:
    """Longest paths over `conflicts and lies below at the reference sizes`."""

    blocks: tuple[Block, ...]
    """Lower ones first."""
    below: tuple[tuple[int, ...], ...]
    """Of each block: those whose ends may be where it starts."""
    top: tuple[int, ...]
    """Those whose ends may be the arena's."""

    @staticmethod
    def of(blocks: Sequence[Block], at_reference: Mapping[str, int]) -> _Stack:
        order = sorted(blocks, key=lambda b: (at_reference[b.name], b.first, b.name))
        below = [
            _highest(order, [n for n in range(m) if conflict(order[n], order[m])], at_reference)
            for m in range(len(order))
        ]
        top = _highest(order, list(range(len(order))), at_reference)
        return _Stack(tuple(order), tuple(below), top)

    def arena_at(self, nbytes: Mapping[str, int]) -> int:
        ends: list[int] = []
        for block, below in zip(self.blocks, self.below):
            ends.append(max((ends[n] for n in below), default=0) + nbytes[block.name])
        return max((ends[n] for n in self.top), default=0)

    def defined(self, define: Callable[[IntExpr], IntExpr]) -> tuple[dict[str, IntExpr], IntExpr]:
        """Offsets by block, and the arena; `define` gives long expressions a name."""
        offsets: dict[str, IntExpr] = {}
        ends: list[IntExpr] = []
        for block, below in zip(self.blocks, self.below):
            offsets[block.name] = define(maximum(0, *(ends[n] for n in below)))
            ends.append(offsets[block.name] + aligned(block.nbytes))
        return offsets, maximum(0, *(ends[n] for n in self.top))


def _highest(order: Sequence[Block], among: list[int], at_reference: Mapping[str, int]) -> tuple[int, ...]:
    """Those that no conflicting block lies above: only their ends can be the highest."""
    kept: list[int] = []
    for n in sorted(among, key=lambda n: (-at_reference[order[n].name], -order[n].first, order[n].name)):
        if not any(conflict(order[n], order[above]) for above in kept):
            kept.append(n)
    return tuple(kept)


# Several orders -------------------------------------------------------------------------------------


def _worth_having(stacks: Sequence[_Stack], points: Sequence[Mapping[str, int]]) -> list[_Stack]:
    """The one that is best over all points together, then those that save something at one of them."""
    arenas = {n: [stack.arena_at(nbytes) for nbytes in points] for n, stack in enumerate(stacks)}
    least = [max(1, min(row[p] for row in arenas.values())) for p in range(len(points))]
    first = min(arenas, key=lambda n: (sum(a / b for a, b in zip(arenas[n], least)), n))
    kept = [first]
    for n in sorted(arenas):
        best = [min(arenas[k][p] for k in kept) for p in range(len(points))]
        if any(own < now - now // _WORTH for own, now in zip(arenas[n], best)):
            kept.append(n)
    return [stacks[n] for n in kept]


def _chosen(stacks: Sequence[_Stack]) -> tuple[dict[str, IntExpr], Definitions, IntExpr]:
    """Offsets of the stack with the smallest arena: definitions of each, then which one, then offsets."""
    names: dict[IntExpr, str] = {}
    """Of what is defined, in order: layers that repeat have the same offsets."""

    def define(expr: IntExpr) -> IntExpr:
        return expr if expr.is_static else IntExpr.of(names.setdefault(expr, f"at{len(names)}"))

    offsets, arena = stacks[0].defined(define)
    for stack in stacks[1:]:
        others, smaller = stack.defined(define)
        arena, smaller = define(arena), define(smaller)
        is_better = define(minimum(1, maximum(0, arena - smaller)))
        offsets = {n: define(offsets[n] + is_better * (others[n] - offsets[n])) for n in sorted(offsets)}
        arena = minimum(arena, smaller)
    return offsets, tuple((name, expr) for expr, name in names.items()), arena
