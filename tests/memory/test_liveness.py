"""Storage of lowered graphs: aliases, outputs, branches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cuvil_build.cuir.dtypes import BOOL, FLOAT32
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.memory.liveness import CopyOut, Place, assign_storage
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    GraphValue,
    Item,
    LoweredGraph,
    RegionItem,
)

EMPTY = LoweredRegion((), (), (), ())


def value(name: str, *shape: int, constant: bool = False) -> GraphValue:
    dims = tuple(IntExpr.of(d) for d in shape or (4,))
    array = np.zeros(shape or (4,), np.float32) if constant else None
    return GraphValue(name, BOOL if name == "cond" else FLOAT32, dims, tuple(range(len(dims))), array)


def region(name: str, operands: Sequence[str], results: Sequence[str]) -> RegionItem:
    return RegionItem(name, EMPTY, tuple(operands), tuple(results), (name,))


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
