"""Orders of items: legal ones only, with a lower peak, and the model's own where nothing is gained."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal
from cuvil_build.memory.arena import aligned_bytes
from cuvil_build.memory.bound import lower_bound
from cuvil_build.memory.liveness import assign_storage
from cuvil_build.memory.order import find_orders, reordered
from cuvil_build.memory.plan import plan_graph
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    DefineItem,
    GraphGuard,
    GuardItem,
    Item,
    LoopItem,
    LoopState,
    LoweredGraph,
    Measured,
    MeasureItem,
    RegionItem,
)
from tests.memory.test_liveness import graph, region, value

WIDE = 4096
GUARD = GraphGuard(IntExpr.of(1), "==", IntExpr.of(1), "a check")


def wide(items: Sequence[Item], outputs: Sequence[str], names: str, large: str) -> LoweredGraph:
    """A graph of small values and `large` ones."""
    plain = graph(["x"], items, outputs, *names.split())
    values = {n: value(n, WIDE if n in large.split() else 16) for n in plain.values if n != "w"}
    return replace(plain, values={**plain.values, **values})


def bound(whole: LoweredGraph) -> int:
    blocks = assign_storage(whole).blocks
    return lower_bound(blocks, aligned_bytes(blocks, {}))


def two_large() -> list[Item]:
    """Both large values are made before either is made small again."""
    return [
        region("0", ["x"], ["a"]),
        region("1", ["x"], ["b"]),
        region("2", ["a"], ["c"]),
        region("3", ["b"], ["d"]),
        region("4", ["c", "d"], ["y"]),
    ]


def names_of(body: Body) -> list[str]:
    return [getattr(item, "name", type(item).__name__) for item in body.items]


def test_a_large_value_is_used_up_before_the_next_one_is_made() -> None:
    plain = wide(two_large(), ["y"], "a b c d y", "a b")
    orders = find_orders(plain, {})
    assert bound(reordered(plain, orders)) < bound(plain)
    assert names_of(reordered(plain, orders).body) == ["0", "2", "1", "3", "4"]


def test_the_order_of_the_model_stays_where_nothing_is_gained() -> None:
    assert find_orders(wide(two_large(), ["y"], "a b c d y", ""), {}) == {}


CHECKS: list[Item] = [
    GuardItem((GUARD,)),
    DefineItem((("n", IntExpr.of(1)),)),
    replace(region("g", ["x"], ["g"]), guards=(GUARD,)),
]


@pytest.mark.parametrize("check", CHECKS)
def test_nothing_moves_before_a_check_that_was_before_it(check: Item) -> None:
    items = two_large()
    items.insert(2, check)
    plain = wide(items, ["y"], "a b c d g y", "a b")
    order = names_of(reordered(plain, find_orders(plain, {})).body)
    name = getattr(check, "name", type(check).__name__)
    assert order.index(name) < min(order.index("2"), order.index("3"))


def test_what_was_before_a_check_may_be_done_after_it() -> None:
    items = [region("0", ["x"], ["a"]), region("1", ["x"], ["b"]), GuardItem((GUARD,)), *two_large()[2:]]
    plain = wide(items, ["y"], "a b c d y", "a b")
    order = names_of(reordered(plain, find_orders(plain, {})).body)
    assert order == ["0", "GuardItem", "2", "1", "3", "4"]


def test_a_number_is_measured_before_what_follows() -> None:
    items: list[Item] = [
        region("0", ["x"], ["a"]),
        region("k", ["x"], ["n"]),
        MeasureItem("n", (Measured("size", 0, 0, IntExpr.of(4), "size"),)),
        *two_large()[1:],
    ]
    plain = wide(items, ["y"], "a b c d n y", "a b")
    order = names_of(reordered(plain, find_orders(plain, {})).body)
    assert order.index("k") < order.index("MeasureItem") < order.index("1")


def test_an_alias_is_made_before_its_readers() -> None:
    items = [*two_large()[:2], AliasItem("a", "view"), region("2", ["view"], ["c"]), *two_large()[3:]]
    plain = wide(items, ["y"], "a b c d view y", "a view b")
    changed = reordered(plain, find_orders(plain, {}))
    order = names_of(changed.body)
    assert order.index("0") < order.index("AliasItem") < order.index("2") < order.index("1")
    assert bound(changed) < bound(plain)


def test_all_writers_of_a_value_come_before_its_readers() -> None:
    items = [
        region("0", ["x"], ["a"]),
        region("1", ["x"], ["b"]),
        region("2", ["a"], ["c"]),
        region("3", ["b"], ["c"]),
        region("4", ["c"], ["y"]),
    ]
    plain = wide(items, ["y"], "a b c y", "a b")
    order = names_of(reordered(plain, find_orders(plain, {})).body)
    assert order == ["0", "2", "1", "3", "4"]


def test_bodies_inside_have_orders_of_their_own() -> None:
    inner = Body(tuple(two_large()), ("y",))
    branch = BranchItem("if", "x", inner, Body((region("e", ["x"], ["z"]),), ("z",)), ("r",))
    plain = wide([branch, region("last", ["r"], ["out"])], ["out"], "a b c d y z r out", "a b")
    orders = find_orders(plain, {})
    assert set(orders) == {"if/then"}
    item = reordered(plain, orders).body.items[0]
    assert isinstance(item, BranchItem) and names_of(item.then_body) == ["0", "2", "1", "3", "4"]


def test_nothing_moves_over_a_loop() -> None:
    body = Body((region("i", ["s"], ["t"]),), ("cond", "t"))
    loop = LoopItem("loop", IntExpr.of(2), "", body, "n", "count", (LoopState("x", "s", "e"),), ())
    items = [*two_large()[:2], loop, *two_large()[2:]]
    plain = wide(items, ["y"], "a b c d s t e cond y", "a b")
    order = names_of(reordered(plain, find_orders(plain, {})).body)
    assert order.index("loop") == 2


def test_an_order_that_is_none_is_refused() -> None:
    with pytest.raises(Internal, match="order"):
        reordered(wide(two_large(), ["y"], "a b c d y", ""), {"": [0, 0, 1, 2, 3]})


def random_graph(seed: int) -> LoweredGraph:
    rng = random.Random(seed)
    items: list[RegionItem] = []
    made = ["x"]
    sizes = {"x": 16}
    for n in range(24):
        name = f"v{n}"
        sizes[name] = rng.choice([16, 64, 1024, 4096])
        items.append(region(str(n), rng.sample(made, min(len(made), rng.randrange(1, 3))), [name]))
        made.append(name)
    used = {name for item in items for name in item.operands}
    outputs = [name for name in made if name not in used]
    plain = graph(["x"], items, outputs, *made[1:])
    return replace(plain, values={**plain.values, **{n: value(n, s) for n, s in sizes.items()}})


@pytest.mark.parametrize("seed", range(10))
def test_orders_are_legal_never_worse_and_the_same_again(seed: int) -> None:
    plain = random_graph(seed)
    orders = find_orders(plain, {}, budget=5000)
    changed = reordered(plain, orders)
    assert bound(changed) <= bound(plain)
    assert orders == find_orders(plain, {}, budget=5000)
    known = {"x"}
    for item in changed.body.items:
        assert isinstance(item, RegionItem)
        assert set(item.operands) <= known
        known |= set(item.results)


def test_a_plan_takes_the_order_with_the_lower_peak() -> None:
    plan = plan_graph(wide(two_large(), ["y"], "a b c d y", "a b"))
    assert plan.memory.lower_bound < plan.source_bound and "" in plan.orders
