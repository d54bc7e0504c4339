"""Offsets at known sizes: greedy starts, then a search until nothing can be gained or a budget of steps ends.

Greedy by size and best fit are the heuristics of Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference" (2020). Each start is an order in which blocks take the lowest place that is free. The
search changes the order: of the blocks that hold the peak up, one comes earlier.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cuvil_build.memory.blocks import Block
from cuvil_build.memory.bound import lower_bound

BUDGET = 200_000
"""Blocks placed, over all tries."""

Fit = Callable[[Sequence[tuple[int, int]], int], int]
"""An offset for so many bytes, beside what is taken: ranges sorted by their start."""


@dataclass(frozen=True, slots=True)
class Placement:
    offsets: dict[str, int]
    arena: int
    bound: int


def place(blocks: Sequence[Block], nbytes: Mapping[str, int], budget: int = BUDGET) -> Placement:
    """`nbytes` are the aligned sizes. The same blocks and budget give the same offsets everywhere."""
    names = sorted(blocks, key=lambda b: (-nbytes[b.name], b.first, b.name))
    search = _Search(names, [nbytes[b.name] for b in names], lower_bound(blocks, nbytes), budget)
    search.run()
    offsets = {b.name: offset for b, offset in zip(names, search.offsets)}
    return Placement(offsets, search.arena, search.bound)


def conflict(left: Block, right: Block) -> bool:
    """Whether both are alive at one instruction."""
    return left.first <= right.last and right.first <= left.last


def best_fit(taken: Sequence[tuple[int, int]], nbytes: int) -> int:
    """Start of the smallest gap that holds `nbytes`, else the end of what is taken."""
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        gap = start - end
        if gap >= nbytes and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, stop)
    return best[1] if best is not None else end


def first_fit(taken: Sequence[tuple[int, int]], nbytes: int) -> int:
    """The lowest place."""
    end = 0
    for start, stop in taken:
        if start - end >= nbytes:
            return end
        end = max(end, stop)
    return end


class _Search:
    def __init__(self, blocks: Sequence[Block], sizes: Sequence[int], bound: int, budget: int) -> None:
        count = len(blocks)
        self.blocks, self.sizes, self.bound, self.left = blocks, sizes, bound, budget
        self.near = [
            [n for n in range(count) if n != m and conflict(blocks[n], blocks[m])] for m in range(count)
        ]
        self.offsets: list[int] = [0] * count
        self.arena = 0
        self.order: list[int] = []
        self.fit: Fit = best_fit

    def run(self) -> None:
        for order in self.starts():
            for fit in (best_fit, first_fit):
                self.try_order(order, fit)
                if self.arena <= self.bound:
                    return
        self.climb()

    def starts(self) -> list[list[int]]:
        """By size; by size and life; by the time that a block is made; by how crowded its life is."""
        every = list(range(len(self.blocks)))  # by size already
        lives = [b.last - b.first + 1 for b in self.blocks]
        crowd = [self.sizes[n] + sum(self.sizes[m] for m in self.near[n]) for n in every]
        return [
            every,
            sorted(every, key=lambda n: -self.sizes[n] * lives[n]),
            sorted(every, key=lambda n: -lives[n]),
            sorted(every, key=lambda n: self.blocks[n].first),
            sorted(every, key=lambda n: -crowd[n]),
        ]

    def try_order(self, order: list[int], fit: Fit) -> None:
        offsets, arena = self.placed(order, fit)
        if not self.order or arena < self.arena:
            self.offsets, self.arena, self.order, self.fit = offsets, arena, order, fit

    def placed(self, order: Sequence[int], fit: Fit) -> tuple[list[int], int]:
        offsets = [-1] * len(order)
        arena = 0
        for n in order:
            nbytes = self.sizes[n]
            taken = sorted((offsets[m], offsets[m] + self.sizes[m]) for m in self.near[n] if offsets[m] >= 0)
            offsets[n] = fit(taken, nbytes)
            arena = max(arena, offsets[n] + nbytes)
        self.left -= len(order)
        return offsets, arena

    # Hill climbing --------------------------------------------------------------------------------

    def climb(self) -> None:
        """Equal steps are taken too: a plateau is the rule."""
        rng = random.Random(0)
        order, offsets, arena, fit = self.order, self.offsets, self.arena, self.fit
        while self.arena > self.bound and self.left > 0:
            changed = self.changed(order, offsets, arena, rng)
            found, height = self.placed(changed, fit)
            if height <= arena:
                order, offsets, arena = changed, found, height
            if height < self.arena:
                self.offsets, self.arena, self.order = found, height, changed

    def changed(self, order: list[int], offsets: list[int], arena: int, rng: random.Random) -> list[int]:
        """One block that holds the peak up is placed before one that it meets."""
        top = [n for n in range(len(order)) if offsets[n] + self.sizes[n] == arena]
        moved = rng.choice(top)
        while offsets[moved] and rng.random() < 0.5:
            below = [m for m in self.near[moved] if offsets[m] + self.sizes[m] == offsets[moved]]
            if not below:
                break
            moved = rng.choice(below)
        places = {n: place for place, n in enumerate(order)}
        earlier = [m for m in self.near[moved] if places[m] < places[moved]]
        goal = places[rng.choice(earlier)] if earlier else rng.randrange(len(order))
        rest = [n for n in order if n != moved]
        return [*rest[:goal], moved, *rest[goal:]]
