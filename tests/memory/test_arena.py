"""Arena plans: no two live blocks overlap, for every size of the dims."""

from __future__ import annotations

import random

import pytest

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.memory.arena import plan_arena
from cuvil_build.memory.blocks import ALIGNMENT, Block, MemoryPlan, aligned
from cuvil_build.memory.placement import conflict


def block(name: str, nbytes: int | IntExpr, first: int, last: int) -> Block:
    return Block(name, IntExpr.of(nbytes), first, last)


def concrete(plan: MemoryPlan, sizes: dict[str, int]) -> tuple[dict[str, int], int]:
    values = dict(sizes)
    for name, expr in plan.definitions:
        values[name] = expr.evaluate(values)
    return {n: o.evaluate(values) for n, o in plan.offsets.items()}, plan.arena.evaluate(values)


def assert_disjoint(blocks: list[Block], plan: MemoryPlan, sizes: dict[str, int]) -> None:
    offsets, arena = concrete(plan, sizes)
    for i, left in enumerate(blocks):
        end = offsets[left.name] + aligned(left.nbytes).evaluate(sizes)
        assert offsets[left.name] % ALIGNMENT == 0
        assert end <= arena or not left.nbytes.evaluate(sizes)
        for right in blocks[i + 1 :]:
            if conflict(left, right):
                right_end = offsets[right.name] + aligned(right.nbytes).evaluate(sizes)
                assert end <= offsets[right.name] or right_end <= offsets[left.name]


def test_arena_reuses_space_of_dead_values() -> None:
    plan = plan_arena([block("a", 640, 0, 1), block("b", 640, 1, 2), block("c", 640, 2, 3)], {})
    assert plan.arena.value == 1280 == plan.lower_bound
    assert plan.offsets["a"] == plan.offsets["c"]


def test_value_that_nobody_reads_lives_through_its_producer() -> None:
    plan = plan_arena([block("used", 64, 0, 1), block("unused", 64, 0, 0)], {})
    assert plan.arena.value == 128


def test_zero_sized_values_take_no_space() -> None:
    plan = plan_arena([block("empty", 0, 0, 9), block("a", 64, 0, 9)], {})
    assert plan.arena.value == 64


@pytest.mark.parametrize("at_reference", [1, 2])
def test_blocks_that_are_nothing_at_the_reference_sizes_keep_apart_at_others(at_reference: int) -> None:
    n = IntExpr.of("n")
    blocks = [Block("a", n * 64, 0, 1), Block("b", (n - 2) * 64, 1, 2), Block("c", (n - 2) * 64, 2, 3)]
    plan = plan_arena(blocks, {"n": at_reference})
    for size in (2, 3, 9):
        assert_disjoint(blocks, plan, {"n": size})


def test_no_blocks_need_no_arena() -> None:
    assert plan_arena([], {}).arena.value == 0


@pytest.mark.parametrize("seed", range(12))
def test_live_blocks_never_overlap_at_any_size(seed: int) -> None:
    rng = random.Random(seed)
    n, m = IntExpr.of("n"), IntExpr.of("m")
    blocks = []
    for i in range(40):
        first = rng.randrange(30)
        nbytes = rng.choice([n * 4, m * 12, n * m * 4, IntExpr.of(rng.randrange(1, 999)), n * 4 + m])
        blocks.append(block(f"b{i}", nbytes, first, first + rng.randrange(6)))
    plan = plan_arena(blocks, {"n": 64, "m": 9})
    for sizes in (
        {"n": 64, "m": 9},
        {"n": 1, "m": 1},
        {"n": 1, "m": 9},
        {"n": 63, "m": 2},
        {"n": 200, "m": 400},
    ):
        assert_disjoint(blocks, plan, sizes)
    assert plan.reference_arena >= plan.lower_bound


@pytest.mark.parametrize("seed", range(4))
def test_static_plans_stay_near_the_lower_bound(seed: int) -> None:
    rng = random.Random(seed)
    blocks = []
    for i in range(60):
        first = rng.randrange(50)
        blocks.append(block(f"b{i}", rng.randrange(64, 20_000), first, first + rng.randrange(1, 5)))
    plan = plan_arena(blocks, {})
    assert_disjoint(blocks, plan, {})
    assert plan.arena.value <= 1.25 * plan.lower_bound


# Several orders ----------------------------------------------------------------------------------


def crossing() -> list[Block]:
    """Which blocks are the large ones depends on the sizes: one order is bad at one end."""
    n, m = IntExpr.of("n"), IntExpr.of("m")
    rng = random.Random(5)
    blocks = []
    for i in range(24):
        first = rng.randrange(20)
        nbytes = rng.choice([n * 64, m * 64, n * 128 + m * 64, n * 64 + 4096, m * 192])
        blocks.append(Block(f"b{i}", nbytes, first, first + rng.randrange(5)))
    return blocks


POINTS = ({"n": 64, "m": 4}, {"n": 4, "m": 64}, {"n": 1, "m": 1})


def test_each_planned_size_gets_an_arena_near_its_own_plan() -> None:
    blocks = crossing()
    plan = plan_arena(blocks, POINTS[0], POINTS[1:])
    for point in POINTS:
        alone = plan_arena(blocks, point).reference_arena
        assert concrete(plan, point)[1] <= alone + alone // 100
    lone = plan_arena(blocks, POINTS[0])
    assert any(concrete(lone, p)[1] > 1.01 * concrete(plan, p)[1] for p in POINTS), "one order does for all"


@pytest.mark.parametrize("sizes", [*POINTS, {"n": 17, "m": 17}, {"n": 500, "m": 3}, {"n": 2, "m": 900}])
def test_all_offsets_are_of_one_order_at_every_size(sizes: dict[str, int]) -> None:
    blocks = crossing()
    assert_disjoint(blocks, plan_arena(blocks, POINTS[0], POINTS[1:]), sizes)


@pytest.mark.parametrize("seed", range(6))
def test_chosen_orders_never_overlap(seed: int) -> None:
    rng = random.Random(seed)
    n, m = IntExpr.of("n"), IntExpr.of("m")
    blocks = []
    for i in range(30):
        first = rng.randrange(24)
        nbytes = rng.choice([n * 4, m * 12, n * m * 4, IntExpr.of(rng.randrange(1, 999)), (n - 2) * 64])
        blocks.append(Block(f"b{i}", nbytes, first, first + rng.randrange(6)))
    plan = plan_arena(blocks, {"n": 64, "m": 9}, [{"n": 2, "m": 64}, {"n": 300, "m": 2}])
    for sizes in ({"n": a, "m": b} for a in (2, 3, 64, 300) for b in (1, 9, 77)):
        assert_disjoint(blocks, plan, sizes)


def test_one_order_that_does_for_all_sizes_is_alone() -> None:
    n = IntExpr.of("n")
    blocks = [Block("a", n * 64, 0, 1), Block("b", n * 64, 1, 2), Block("c", n * 128, 2, 3)]
    assert plan_arena(blocks, {"n": 8}, [{"n": 1}, {"n": 99}]) == plan_arena(blocks, {"n": 8})
