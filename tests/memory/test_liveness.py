"""Storage of lowered graphs: aliases, outputs, branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cuvil_build.cuir.dtypes import BOOL, DTYPES, FLOAT32
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import INPUT, OUTPUT, Buffer, Expr, Load, apply
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Axis, Nest, Stage
from cuvil_build.memory.liveness import CopyOut, InPlace, Place, Storage, assign_storage
from cuvil_build.memory.moves import Move
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    GraphValue,
    Item,
    LaunchItem,
    LoopItem,
    LoopState,
    LoweredGraph,
    Measured,
    MeasureItem,
    RegionItem,
)


def value(name: str, *shape: int, constant: bool = False) -> GraphValue:
    dims = tuple(IntExpr.of(d) for d in shape or (4,))
    array = np.zeros(shape or (4,), np.float32) if constant else None
    return GraphValue(name, BOOL if name == "cond" else FLOAT32, dims, tuple(range(len(dims))), array)


def region(name: str, operands: Sequence[str], results: Sequence[str]) -> RegionItem:
    """One that computes nothing."""
    shape = (IntExpr.of(4),)
    inputs = tuple(Buffer(f"x{n}", FLOAT32, shape, (0,), INPUT) for n in range(len(operands)))
    outputs = tuple(Buffer(f"y{n}", FLOAT32, shape, (0,), OUTPUT) for n in range(len(results)))
    lowered = LoweredRegion(inputs, outputs, (), ())
    return RegionItem(name, lowered, tuple(operands), tuple(results), (name,))


def copying(name: str, operands: Sequence[str], result: str) -> RegionItem:
    """result[i] = the sum of operand[i]."""
    plain = region(name, operands, [result])
    i = IntExpr.of("i")
    value: Expr = Load(plain.region.inputs[0], (i,))
    for buffer in plain.region.inputs[1:]:
        value = apply("add", value, Load(buffer, (i,)))
    stage = Stage((), "store", plain.region.outputs[0], (i,), value)
    nest = Nest("map", (Axis("i", IntExpr.of(4)),), (stage,))
    return replace(plain, region=replace(plain.region, nests=(nest,)))


def graph(inputs: Sequence[str], items: Sequence[Item], outputs: Sequence[str], *names: str) -> LoweredGraph:
    values = {n: value(n) for n in (*inputs, *names)}
    values["w"] = value("w", constant=True)
    return LoweredGraph(values, tuple(inputs), Body(tuple(items), tuple(outputs)), {})


def test_results_are_written_where_the_caller_wants_them() -> None:
    storage = assign_storage(graph(["x"], [region("r", ["x"], ["y"])], ["y"], "y"))
    assert storage.places["y"] == Place("output", 0)
    assert not storage.blocks


def test_aliases_share_the_storage_and_the_life_of_their_source() -> None:
    items = [
        region("r0", ["x"], ["a"]),
        AliasItem("a", "b"),
        region("r1", ["x"], ["c"]),
        region("r2", ["b", "c"], ["y"]),
    ]
    storage = assign_storage(graph(["x"], items, ["y"], "a", "b", "c", "y"))
    blocks = {b.name: b for b in storage.blocks}
    assert storage.places["b"] == storage.places["a"]
    assert blocks["a"].last >= blocks["c"].last


def test_an_input_that_is_an_output_is_copied() -> None:
    storage = assign_storage(graph(["x"], [AliasItem("x", "y")], ["y"], "y"))
    assert storage.copies[""] == (CopyOut("y", "output 0"),)


def test_a_constant_output_is_copied() -> None:
    storage = assign_storage(graph(["x"], [], ["w"]))
    assert storage.copies[""] == (CopyOut("w", "output 0"),)


def test_a_value_that_is_two_outputs_is_copied_once() -> None:
    storage = assign_storage(
        graph(["x"], [region("r", ["x"], ["y"]), AliasItem("y", "z")], ["y", "z"], "y", "z")
    )
    assert storage.places["y"] == Place("output", 0)
    assert storage.copies[""] == (CopyOut("z", "output 1"),)


def test_branches_write_their_results_in_place() -> None:
    branch = BranchItem(
        "if",
        "cond",
        Body((region("t", ["x"], ["a"]),), ("a",)),
        Body((region("e", ["x"], ["b0"]), region("e2", ["b0"], ["b"])), ("b",)),
        ("y",),
    )
    storage = assign_storage(graph(["x", "cond"], [branch], ["y"], "a", "b", "b0", "y"))
    assert storage.places["a"] == storage.places["b"] == storage.places["y"] == Place("output", 0)
    assert [b.name for b in storage.blocks] == ["b0"]


def test_a_branch_that_passes_an_outer_value_on_copies_it() -> None:
    branch = BranchItem("if", "cond", Body((region("t", ["x"], ["a"]),), ("a",)), Body((), ("x",)), ("z",))
    items = [branch, region("r", ["z"], ["y"])]
    storage = assign_storage(graph(["x", "cond"], items, ["y"], "a", "z", "y"))
    assert storage.copies["if/else"] == (CopyOut("x", "z"),)
    assert storage.places["a"] == storage.places["z"]


def test_values_used_inside_a_branch_live_through_it() -> None:
    branch = BranchItem(
        "if",
        "cond",
        Body((region("t0", ["x"], ["t"]), region("t1", ["t", "a"], ["u"])), ("u",)),
        Body((region("e", ["x"], ["v"]),), ("v",)),
        ("y",),
    )
    storage = assign_storage(graph(["x", "cond"], [region("r", ["x"], ["a"]), branch], ["y"], *"atuvy"))
    blocks = {b.name: b for b in storage.blocks}
    assert blocks["a"].first < blocks["t"].first <= blocks["t"].last <= blocks["a"].last


def test_the_sides_of_a_branch_share_space_and_leave_what_is_needed_after_it() -> None:
    sides = (
        Body((region("t0", ["a"], ["t"]), region("t1", ["t"], ["u"])), ("u",)),
        Body((region("e0", ["a"], ["v"]), region("e1", ["v"], ["z"])), ("z",)),
    )
    branch = BranchItem("if", "cond", *sides, ("r",))
    items = [region("r", ["x"], ["a"]), region("s", ["x"], ["b"]), branch, region("l", ["r", "b"], ["y"])]
    storage = assign_storage(graph(["x", "cond"], items, ["y"], *"abtuvzry"))
    blocks = lives(storage)
    assert blocks["t"][1] < blocks["v"][0]
    for name in ("t", "v"):
        for held in ("r", "b"):
            assert blocks[held][0] < blocks[name][0] <= blocks[name][1] < blocks[held][1]


def loop(states: Sequence[tuple[str, str, str]], body: Body, *scanned: str, name: str = "loop") -> LoopItem:
    rows = tuple(LoopState(*state) for state in states)
    return LoopItem(name, IntExpr.of(3), "", body, f"{name}_i", f"{name}_n", rows, scanned)


def lives(storage: Storage) -> dict[str, tuple[int, int]]:
    return {b.name: (b.first, b.last) for b in storage.blocks}


def test_what_a_loop_reads_from_outside_lives_through_all_iterations() -> None:
    body = Body((region("r0", ["s", "a"], ["t"]), region("r1", ["t", "s"], ["u"])), ("cond", "u"))
    items = [region("r", ["x"], ["a"]), loop([("x", "s", "end")], body), region("last", ["end"], ["y"])]
    storage = assign_storage(graph(["x", "cond"], items, ["y"], *"astuy", "end"))
    blocks = lives(storage)
    assert blocks["a"][1] >= blocks["u"][1] and blocks["s"][1] > blocks["u"][1]
    assert blocks["s"][0] < blocks["t"][0]
    assert storage.places["end"] == storage.places["s"]
    assert storage.moves["loop/first"] == (Move("x", "s", IntExpr.of(16)),)


def test_values_of_one_iteration_share_space() -> None:
    body = Body(
        tuple(region(f"r{n}", [a], [b]) for n, (a, b) in enumerate(zip("stuv", "tuvw"))), ("cond", "w")
    )
    names = graph(["x", "cond"], [loop([("x", "s", "y")], body)], ["y"], *"stuvy")
    values = {**names.values, "w": value("w")}
    storage = assign_storage(replace(names, values=values))
    blocks = lives(storage)
    assert storage.places["s"] == storage.places["y"] == Place("output", 0)
    assert blocks["t"][1] < blocks["v"][0]
    # "w" is written where the state is, since nobody reads the state any more
    assert storage.places["w"] == storage.places["s"] and storage.moves["loop/next"] == ()


def test_a_state_that_is_read_to_the_end_is_copied_to() -> None:
    body = Body((region("r0", ["s"], ["t"]), region("r1", ["t", "s"], ["u"])), ("cond", "u"))
    storage = assign_storage(graph(["x", "cond"], [loop([("x", "s", "y")], body)], ["y"], *"stuy"))
    assert storage.places["u"] != storage.places["s"]
    assert storage.moves["loop/next"] == (Move("u", "s", IntExpr.of(16)),)


def test_states_that_swap_take_a_stop() -> None:
    body = Body((AliasItem("s", "s2"),), ("cond", "t", "s2"))
    states = [("x", "s", "a"), ("x", "t", "b")]
    storage = assign_storage(graph(["x", "cond"], [loop(states, body)], ["a", "b"], *"stab", "s2"))
    sixteen = IntExpr.of(16)
    assert storage.moves["loop/next"] == (
        Move("t", "loop/stop0", sixteen),
        Move("s2", "t", sixteen),
        Move("loop/stop0", "s", sixteen),
    )
    assert storage.places["loop/stop0"].kind == "arena"


def test_states_that_are_passed_on_are_copied_in_an_order_that_works() -> None:
    body = Body((), ("cond", "x", "s", "t"))
    states = [("x", "s", "a"), ("x", "t", "b"), ("x", "u", "c")]
    storage = assign_storage(graph(["x", "cond"], [loop(states, body)], ["a", "b", "c"], *"stuabc"))
    assert [(m.source, m.target) for m in storage.moves["loop/next"]] == [("t", "u"), ("s", "t"), ("x", "s")]


def test_what_has_no_limit_is_in_a_heap_and_shares_it_once_nobody_needs_it() -> None:
    items = [
        MeasureItem("k", (Measured("n", 0, 0, None, "n"),)),
        *(region(f"r{i}", [a], [b]) for i, (a, b) in enumerate(["xa", "ab", "bc", "cy"])),
    ]
    plain = graph(["x", "k"], items, ["y"], *"abcy")
    unlimited = {n: replace(plain.values[n], shape=(IntExpr.of("n"),)) for n in "abcy"}
    storage = assign_storage(replace(plain, values={**plain.values, **unlimited}, limits={"n": None}))
    assert {n: storage.places[n] for n in "abcy"} == {
        "a": Place("heap", 0),
        "b": Place("heap", 1),
        "c": Place("heap", 0),
        "y": Place("heap", 1),
    }
    assert storage.heaps == 2 and not storage.blocks and not storage.copies


def test_what_has_a_limit_lies_in_the_arena_at_its_limit() -> None:
    items = [MeasureItem("k", (Measured("n", 0, 0, None, "n"),)), region("r", ["x"], ["a"])]
    plain = graph(["x", "k"], [*items, region("q", ["a"], ["y"])], ["y"], "a", "y")
    changed = replace(plain.values["a"], shape=(IntExpr.of("n"),))
    storage = assign_storage(
        replace(plain, values={**plain.values, "a": changed}, limits={"n": IntExpr.of("m") * 2})
    )
    assert [str(b.nbytes) for b in storage.blocks] == ["8*m"]


def test_a_loop_in_a_loop_keeps_what_the_outer_one_reads() -> None:
    inner = loop([("s", "t", "end")], Body((region("r1", ["t", "a"], ["u"]),), ("cond", "u")), name="inner")
    outer = loop([("x", "s", "y")], Body((inner,), ("cond", "end")), name="outer")
    storage = assign_storage(graph(["x", "cond"], [region("r", ["x"], ["a"]), outer], ["y"], *"astuy", "end"))
    blocks = lives(storage)
    assert blocks["a"][1] > blocks["t"][1] > blocks["u"][1]
    assert [(m.source, m.target) for m in storage.moves["outer/next"]] == [("end", "s")]


def test_an_alias_of_a_constant_is_that_constant() -> None:
    items = [AliasItem("w", "v"), region("r", ["x", "v"], ["y"])]
    assert assign_storage(graph(["x"], items, ["y"], "v", "y")).places["v"] == Place("constant", block="w")


# What runs at once, and values that several regions write ----------------------------------------


def test_nothing_that_runs_at_once_shares_bytes() -> None:
    launch = LaunchItem((region("r0", ["a"], ["b"]), region("r1", ["x"], ["c"])))
    items = [region("r", ["x"], ["a"]), launch, region("last", ["b", "c"], ["y"])]
    blocks = lives(assign_storage(graph(["x"], items, ["y"], *"abcy")))
    assert blocks["b"] == blocks["c"] and blocks["a"][1] == blocks["b"][0]


def test_inner_buffers_of_what_runs_at_once_are_there_at_once() -> None:
    inner = Buffer("n0", FLOAT32, (IntExpr.of(8),), (0,), "inner")
    members = [region("r0", ["x"], ["a"]), region("r1", ["x"], ["b"])]
    launch = LaunchItem(tuple(replace(m, region=replace(m.region, inner=(inner,))) for m in members))
    items = [launch, region("last", ["a", "b"], ["y"])]
    blocks = lives(assign_storage(graph(["x"], items, ["y"], *"aby")))
    assert blocks["r0/n0"] == blocks["r1/n0"] == (blocks["a"][0], blocks["a"][0])


def test_a_value_of_several_writers_lives_from_the_first() -> None:
    items = [
        region("r0", ["x"], ["a"]),
        region("between", ["x"], ["b"]),
        region("r1", ["b"], ["a"]),
        region("last", ["a"], ["y"]),
    ]
    blocks = lives(assign_storage(graph(["x"], items, ["y"], *"aby")))
    assert blocks["a"][0] < blocks["b"][0] <= blocks["b"][1] < blocks["a"][1]


# In place ----------------------------------------------------------------------------------------


def test_a_result_takes_the_block_of_an_operand_that_dies() -> None:
    items = [copying("r0", ["x"], "a"), copying("r1", ["a"], "b"), copying("r2", ["b"], "y")]
    storage = assign_storage(graph(["x"], items, ["y"], *"aby"))
    assert storage.in_place == (InPlace("r1", "a", "b"),)
    assert storage.places["a"] == storage.places["b"] == Place("arena", block="a")
    assert lives(storage) == {"a": (1, 3)}


def test_a_chain_in_place_is_one_block() -> None:
    items = [copying(f"r{n}", [a], b) for n, (a, b) in enumerate(["xa", "ab", "bc", "cy"])]
    storage = assign_storage(graph(["x"], items, ["y"], *"abcy"))
    assert [b.name for b in storage.blocks] == ["a"] and len(storage.in_place) == 2


def test_an_operand_that_is_read_later_is_left() -> None:
    items = [copying("r0", ["x"], "a"), copying("r1", ["a"], "b"), copying("r2", ["a", "b"], "y")]
    assert not assign_storage(graph(["x"], items, ["y"], *"aby")).in_place


def test_an_alias_that_is_read_later_keeps_the_operand() -> None:
    items = [
        copying("r0", ["x"], "a"),
        AliasItem("a", "view"),
        copying("r1", ["a"], "b"),
        copying("r2", ["view", "b"], "y"),
    ]
    assert not assign_storage(graph(["x"], items, ["y"], *"aby", "view")).in_place


def test_an_operand_under_two_names_is_overwritten_only_where_both_allow_it() -> None:
    both = copying("r1", ["a", "view"], "b")
    items = [copying("r0", ["x"], "a"), AliasItem("a", "view"), both, copying("r2", ["b"], "y")]
    found = graph(["x"], items, ["y"], *"aby", "view")
    assert len(assign_storage(found).in_place) == 1
    (whole,) = both.region.nests
    assert isinstance(whole, Nest)
    stage = whole.stages[0]
    turned = Load(both.region.inputs[1], (3 - IntExpr.of("i"),))
    nest = replace(whole, stages=(replace(stage, value=apply("add", stage.value, turned)),))
    turning = replace(both, region=replace(both.region, nests=(nest,)))
    items = [items[0], items[1], turning, items[3]]
    assert not assign_storage(graph(["x"], items, ["y"], *"aby", "view")).in_place


def test_inputs_constants_and_outputs_are_never_overwritten() -> None:
    items = [copying("r0", ["x"], "a"), copying("r1", ["a"], "b"), copying("r2", ["w"], "c")]
    items += [copying("r3", ["b", "c"], "y")]
    storage = assign_storage(graph(["x"], items, ["a", "y"], *"abcy"))
    assert not storage.in_place
    assert storage.places["a"] == Place("output", 0)


def test_what_another_region_of_the_launch_reads_is_not_overwritten() -> None:
    launch = LaunchItem((copying("r0", ["a"], "b"), copying("r1", ["a"], "c")))
    items = [copying("r", ["x"], "a"), launch, copying("last", ["b", "c"], "y")]
    assert not assign_storage(graph(["x"], items, ["y"], *"abcy")).in_place


def test_what_one_region_of_a_launch_reads_alone_is_overwritten() -> None:
    launch = LaunchItem((copying("r0", ["a"], "b"), copying("r1", ["x"], "c")))
    items = [copying("r", ["x"], "a"), launch, copying("last", ["b", "c"], "y")]
    assert assign_storage(graph(["x"], items, ["y"], *"abcy")).in_place == (InPlace("r0", "a", "b"),)


def test_a_value_that_several_regions_of_a_launch_write_is_not_in_place() -> None:
    launch = LaunchItem((copying("r0", ["a"], "b"), copying("r1", ["x"], "b")))
    items = [copying("r", ["x"], "a"), launch, copying("last", ["b"], "y")]
    assert not assign_storage(graph(["x"], items, ["y"], *"aby")).in_place


def test_a_loop_does_not_overwrite_what_the_next_iteration_reads() -> None:
    body = Body((copying("r0", ["a"], "t"), copying("r1", ["t", "s"], "u")), ("cond", "u"))
    items = [copying("r", ["x"], "a"), loop([("x", "s", "y")], body)]
    storage = assign_storage(graph(["x", "cond"], items, ["y"], *"astuy"))
    assert InPlace("r0", "a", "t") not in storage.in_place


def test_elements_of_few_bits_share_bytes() -> None:
    items = [region("r0", ["x"], ["a"]), region("r1", ["a"], ["y"])]
    plain = graph(["x"], items, ["y"], "a", "y")
    small = replace(value("a", 3, 5), dtype=DTYPES["int4"])
    storage = assign_storage(replace(plain, values={**plain.values, "a": small}))
    assert [b.nbytes for b in storage.blocks] == [IntExpr.of(8)]


def test_a_result_that_nobody_reads_lives_through_its_region() -> None:
    items = [region("r0", ["x"], ["a", "unused"]), region("r1", ["a"], ["b"]), region("r2", ["b"], ["y"])]
    blocks = lives(assign_storage(graph(["x"], items, ["y"], "a", "unused", "b", "y")))
    assert blocks["unused"] == (1, 1) and blocks["a"][0] == 1


def test_positions_name_what_happens_there() -> None:
    launch = LaunchItem((region("r1", ["a"], ["b"]), region("r2", ["x"], ["c"])))
    items = [region("r0", ["x"], ["a"]), launch, region("r3", ["b", "c"], ["y"])]
    storage = assign_storage(graph(["x"], items, ["y"], *"abcy"))
    assert storage.positions == ("", "r0", "r1 | r2", "r3", "end")
    assert storage.regions[2] == ("r1", "r2")


def test_blocks_of_another_size_are_left() -> None:
    items = [copying("r0", ["x"], "a"), copying("r1", ["a"], "b"), copying("r2", ["b"], "y")]
    plain = graph(["x"], items, ["y"], *"aby")
    wide = {**plain.values, "b": value("b", 8)}
    assert not assign_storage(replace(plain, values=wide)).in_place
