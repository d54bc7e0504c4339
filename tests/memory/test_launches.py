"""Regions that run at once: what may join, what may not, and what memory says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.codegen.module_tables import launches_of
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.memory.bound import lower_bound
from cuvil_build.memory.launches import CLOSE_BYTES, group_launches
from cuvil_build.memory.liveness import assign_storage
from cuvil_build.ops.lowered_graph import (
    MAX_JOINED,
    AliasItem,
    Body,
    BranchItem,
    GraphGuard,
    Item,
    LaunchItem,
    LoopItem,
    LoopState,
    LoweredGraph,
    Measured,
    MeasureItem,
    RegionItem,
)
from tests.codegen.built_graphs import SmallModule, lowered, planned
from tests.codegen.module_plans import dl
from tests.memory.test_liveness import copying, graph, region, value
from tests.ops.run_graph import run_graph

NEVER = GraphGuard(IntExpr.of("n"), "==", IntExpr.of(1), "n")


def launches(body: Body) -> list[str]:
    """Names of what runs at once, joined by `+`; aliases and guards left aside."""
    found = []
    for item in body.items:
        if isinstance(item, LaunchItem):
            found.append("+".join(region.name for region in item.items))
        elif not isinstance(item, AliasItem):
            found.append(getattr(item, "name", type(item).__name__))
    return found


def joined(
    items: Sequence[Item], outputs: Sequence[str], *wide: str, inputs: Sequence[str] = ("x",)
) -> list[str]:
    """What becomes of a graph whose values `wide` are larger than a cache."""
    return launches(group_launches(small(items, outputs, *wide, inputs=inputs)).body)


def small(
    items: Sequence[Item],
    outputs: Sequence[str],
    *wide: str,
    inputs: Sequence[str] = ("x",),
    huge: str = "",
) -> LoweredGraph:
    names = sorted({n for item in items for n in written(item)})
    whole = graph(inputs, items, outputs, *names)
    values = {n: value(n, CLOSE_BYTES) if n in wide else v for n, v in whole.values.items()}
    values |= {n: value(n, 8 * CLOSE_BYTES) for n in (huge,) if n}
    return replace(whole, values=values)


def written(item: Item) -> list[str]:
    if isinstance(item, RegionItem):
        return [*item.results]
    if isinstance(item, AliasItem):
        return [item.result]
    if isinstance(item, BranchItem):
        inner = [n for body in (item.then_body, item.else_body) for i in body.items for n in written(i)]
        return [*item.results, *inner]
    if isinstance(item, LoopItem):
        states = [n for s in item.states for n in (s.formal, s.result)]
        return [*states, *item.scanned, *(n for i in item.body.items for n in written(i))]
    return []


def test_readers_of_one_value_run_at_once() -> None:
    items = [copying(n, ["x"], f"{n}_") for n in "qkv"]
    assert joined([*items, copying("sum", ["q_", "k_", "v_"], "y")], ["y"]) == ["q+k+v", "sum"]


def test_reshapes_between_do_not_matter() -> None:
    items = [
        copying("q", ["x"], "a"),
        AliasItem("a", "a1"),
        copying("k", ["x"], "b"),
        AliasItem("b", "b1"),
        copying("sum", ["a1", "b1"], "y"),
    ]
    assert joined(items, ["y"]) == ["q+k", "sum"]


def test_what_reads_a_result_waits_for_it_also_through_an_alias() -> None:
    items = [
        copying("a", ["x"], "p"),
        AliasItem("p", "p1"),
        copying("b", ["p1"], "q"),
        copying("c", ["q"], "y"),
    ]
    assert joined(items, ["y"]) == ["a", "b", "c"]


PEAK = (copying("big", ["x"], "huge"), copying("use", ["huge"], "x1"))
"""What needs much more memory than all that comes after it."""


def test_chains_run_side_by_side() -> None:
    left = [copying("a0", ["x1"], "p"), copying("a1", ["p"], "q")]
    right = [copying("b0", ["x1"], "r"), copying("b1", ["r"], "s")]
    items = [*PEAK, *left, *right, copying("sum", ["q", "s"], "y")]
    assert joined(items, ["y"], "huge") == ["big", "use", "a0+b0", "a1+b1", "sum"]


def test_results_that_do_not_stay_in_a_cache_move_over_nothing() -> None:
    left = [copying("a0", ["x1"], "p"), copying("a1", ["p"], "q"), copying("a2", ["q"], "q2")]
    right = [copying("b0", ["x1"], "r"), copying("b1", ["r"], "s")]
    items = [*PEAK, *left, *right, copying("sum", ["q2", "s"], "y")]
    found = launches(group_launches(small(items, ["y"], "r", huge="huge")).body)
    assert found == ["big", "use", "a0", "a1", "a2+b0", "b1", "sum"]


def test_joining_takes_no_more_memory() -> None:
    """All three at once would be alive together; one after the other only two are."""
    items = [
        copying("a", ["x"], "p"),
        copying("a_", ["p"], "p_"),
        copying("b", ["x"], "q"),
        copying("b_", ["q"], "q_"),
        copying("sum", ["p_", "q_"], "y"),
    ]
    plain = small(items, ["y"], "p", "q")
    found = group_launches(plain)
    assert launches(found.body) == ["a", "a_", "b", "b_", "sum"]
    assert bytes_alive(found) == bytes_alive(plain)


def bytes_alive(whole: LoweredGraph) -> int:
    blocks = assign_storage(whole).blocks
    return lower_bound(blocks, {b.name: b.nbytes.evaluate(whole.reference_sizes()) for b in blocks})


def test_what_follows_a_check_stays_behind_it() -> None:
    measure = MeasureItem("p", (Measured("n", 0, 0, None, "n"),))
    guarded = replace(copying("c", ["x"], "r"), guards=(NEVER,))
    items = [
        copying("a", ["x"], "p"),
        measure,
        copying("b", ["x"], "q"),
        guarded,
        copying("d", ["x"], "s"),
        copying("sum", ["q", "r", "s"], "y"),
    ]
    found = group_launches(small(items, ["y"])).body
    assert launches(found) == ["a", "MeasureItem", "b", "c+d", "sum"]
    (launch,) = [item for item in found.items if isinstance(item, LaunchItem)]
    assert launch.guards == (NEVER,)


def test_regions_of_several_nests_run_alone() -> None:
    two = copying("b", ["x"], "q")
    two = replace(two, region=replace(two.region, nests=two.region.nests * 2))
    items = [copying("a", ["x"], "p"), two, copying("c", ["x"], "r"), copying("sum", ["p", "q", "r"], "y")]
    assert joined(items, ["y"]) == ["a+c", "b", "sum"]


def test_a_launch_has_no_more_than_so_many_regions() -> None:
    items = [copying(f"r{n:02}", ["x"], f"v{n:02}") for n in range(MAX_JOINED + 2)]
    outputs = [f"v{n:02}" for n in range(MAX_JOINED + 2)]
    assert [name.count("+") + 1 for name in joined(items, outputs)] == [MAX_JOINED, 2]


def test_branches_and_loops_stay_in_place_and_join_inside() -> None:
    pair = (copying("a", ["x"], "p"), copying("b", ["x"], "q"), copying("sum", ["p", "q"], "s"))
    other = Body((copying("e", ["x"], "t"),), ("t",))
    branch = BranchItem("if", "cond", Body(pair, ("s",)), other, ("z",))
    items = [
        copying("first", ["x"], "f"),
        branch,
        copying("last", ["x"], "l"),
        copying("end", ["z", "f", "l"], "y"),
    ]
    found = group_launches(small(items, ["y"], inputs=("x", "cond"))).body
    assert launches(found) == ["first", "if", "last", "end"]
    (inner,) = [item for item in found.items if isinstance(item, BranchItem)]
    assert launches(inner.then_body) == ["a+b", "sum"]


def test_the_next_state_of_a_loop_is_written_where_the_state_was() -> None:
    """Only while nobody reads the state any more: at once with its last reader it would need a copy."""
    body = (copying("read", ["state"], "a"), copying("next", ["x"], "n"), copying("out", ["a"], "o"))
    loop = LoopItem(
        "loop",
        IntExpr.of(3),
        "",
        Body(body, ("yes", "n", "o")),
        "i",
        "count",
        (LoopState("x", "state", "left"),),
        ("scanned",),
    )
    whole = small([loop], ["left"], inputs=("x", "yes"))
    found = group_launches(whole)
    (inner,) = [item for item in found.body.items if isinstance(item, LoopItem)]
    assert launches(inner.body) == ["read", "next+out"]
    assert assign_storage(found).places["n"] == assign_storage(found).places["state"]


def test_parts_of_one_value_are_written_at_once_and_read_after_all() -> None:
    parts = [copying("head", ["x"], "whole"), copying("other", ["x"], "p"), copying("tail", ["x"], "whole")]
    items = [*parts, copying("end", ["whole", "p"], "y")]
    assert joined(items, ["y"]) == ["head+other+tail", "end"]


def test_regions_without_work_and_graphs_without_regions() -> None:
    assert joined([], ["x"]) == []
    assert joined([region("r", ["x"], ["y"])], ["y"]) == ["r"]


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_keep_their_order_and_their_memory(seed: int) -> None:
    random_ = random.Random(seed)
    names, items, wide = ["x"], [], []
    for number in range(40):
        operands = random_.sample(names[-8:], min(len(names), random_.choice((1, 1, 2))))
        result = f"v{number}"
        if random_.random() < 0.2:
            items.append(AliasItem(operands[0], result))
        else:
            items.append(copying(f"r{number}", operands, result))
            wide += [result] if random_.random() < 0.2 else []
        names.append(result)
    plain = small(items, names[-2:], *wide)
    found = group_launches(plain)
    assert bytes_alive(found) <= bytes_alive(plain)
    known, count = {"x"}, 0
    for item in found.body.items:
        members = item.items if isinstance(item, LaunchItem) else (item,)
        reads = {n for m in members for n in ((m.source,) if isinstance(m, AliasItem) else m.operands)}
        assert reads <= known
        known |= {n for m in members for n in written(m)}
        count += len(members)
    assert count == len(items)
    assert known == set(names)


MODEL = """
agraph (float[rows, 48] x) => (float[rows, 48] y, float[rows, 96] z)
<float[48, 48] wq = {WQ}, float[48, 48] wk = {WK}, float[48, 48] wv = {WV}>
{
  q = MatMul(x, wq)
  k = MatMul(x, wk)
  v = MatMul(x, wv)
  kt = Transpose<perm=[1, 0]>(k)
  s = MatMul(q, kt)
  p = Softmax(s)
  y = MatMul(p, v)
  e = Exp(q)
  n = Neg(k)
  z = Concat<axis=1>(e, n)
}
"""


def model_text() -> str:
    random_ = np.random.default_rng(0)
    text = MODEL
    for name in ("WQ", "WK", "WV"):
        numbers = ", ".join(f"{n:.4f}" for n in random_.normal(size=48 * 48) / 8)
        text = text.replace(f"{{{name}}}", f"{{{numbers}}}")
    return text


def test_a_model_computes_the_same_in_launches() -> None:
    _, plain = lowered(model_text())
    found = group_launches(plain)
    assert max(name.count("+") for name in launches(found.body)) >= 2
    x = np.random.default_rng(1).normal(size=(7, 48)).astype(np.float32)
    for one, other in zip(run_graph(found, {"x": x}), run_graph(plain, {"x": x}), strict=True):
        np.testing.assert_array_equal(one, other)


def test_modules_give_the_same_bits_for_any_number_of_threads(tmp_path: Path) -> None:
    module = SmallModule(model_text(), tmp_path / "joined", grouped=True)
    alone = SmallModule(model_text(), tmp_path / "alone")
    assert [len(calls) for calls in launches_of(module.plan.body)] == [3, 3, 1, 1, 1]
    assert [len(calls) for calls in launches_of(alone.plan.body)] == [1] * 9
    for rows in (1, 5, 64, 301):
        x = np.random.default_rng(rows).normal(size=(rows, 48)).astype(np.float32)
        wanted = alone.run({"x": x})
        for threads in (1, 2, 4):
            context = module.api.opened(threads=threads)
            for one, other in zip(module.api.ran(context, [dl(x)]), wanted, strict=True):
                np.testing.assert_array_equal(one, other)
            module.api.close(context)
        for one, other in zip(wanted, module.wanted({"x": x}), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_calls_of_long_chunks_begin_first(tmp_path: Path) -> None:
    """One chunk that is most of the work, after many short ones: they keep their order among themselves."""
    text = """
agraph (float[64, 48] x, float[1, 5000] s)
  => (float[64, 48] y, float[64, 48] z, float[1, 5000] top, int64[1, 5000] i)
<int64[1] k = {5000}>
{
  y = Exp(x)
  z = Neg(x)
  top, i = TopK<axis=1>(s, k)
}
"""
    _, plain = lowered(text)
    plan = planned(group_launches(plain), tmp_path / "weights")
    (calls,) = launches_of(plan.body)
    assert [call.comment for call in calls] == ["TopK", "Exp", "Neg"]
