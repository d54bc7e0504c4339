"""Placements at known sizes: nothing overlaps, and the search closes gaps that the greedy starts leave."""

from __future__ import annotations

import random

import pytest

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.memory.blocks import Block
from cuvil_build.memory.placement import best_fit, conflict, first_fit, place


def blocks_of(seed: int, count: int, longest: int = 6) -> tuple[list[Block], dict[str, int]]:
    rng = random.Random(seed)
    blocks, nbytes = [], {}
    for n in range(count):
        first = rng.randrange(count)
        size = 64 * rng.randrange(1, 200)
        blocks.append(Block(f"b{n}", IntExpr.of(size), first, first + rng.randrange(longest)))
        nbytes[f"b{n}"] = size
    return blocks, nbytes


@pytest.mark.parametrize("seed", range(6))
def test_live_blocks_do_not_overlap_and_the_plan_is_the_same_again(seed: int) -> None:
    blocks, nbytes = blocks_of(seed, 30)
    found = place(blocks, nbytes, budget=20_000)
    for n, left in enumerate(blocks):
        end = found.offsets[left.name] + nbytes[left.name]
        assert found.offsets[left.name] >= 0 and end <= found.arena
        for right in blocks[n + 1 :]:
            if conflict(left, right):
                start = found.offsets[right.name]
                assert end <= start or start + nbytes[right.name] <= found.offsets[left.name]
    assert found == place(list(reversed(blocks)), nbytes, budget=20_000)


@pytest.mark.parametrize("seed", range(6))
def test_the_search_is_no_worse_than_its_start_and_near_the_bound(seed: int) -> None:
    blocks, nbytes = blocks_of(seed, 40)
    start, found = place(blocks, nbytes, budget=0), place(blocks, nbytes, budget=40_000)
    assert found.bound <= found.arena <= start.arena
    assert found.arena <= 1.05 * found.bound


def test_the_search_finds_what_no_greedy_start_does() -> None:
    better = 0
    for seed in range(12):
        blocks, nbytes = blocks_of(seed, 24, longest=9)
        better += place(blocks, nbytes, 40_000).arena < place(blocks, nbytes, 0).arena
    assert better


def test_gaps() -> None:
    taken = [(64, 128), (128, 192), (448, 512)]
    assert best_fit(taken, 64) == 0 == first_fit(taken, 64)
    assert best_fit(taken, 192) == 192 == first_fit(taken, 192)
    assert best_fit(taken, 512) == 512 == first_fit(taken, 512)
    assert best_fit([(256, 320), (384, 448)], 64) == 320
    assert first_fit([(256, 320), (384, 448)], 64) == 0
