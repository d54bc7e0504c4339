"""What is said of a memory plan: figures at several sizes, the peak, and what is alive there."""

from __future__ import annotations

from cuvil_build.memory.explain import explain, sized, unbounded
from tests.memory.plans import small_plan


def test_the_plan_is_explained_at_its_largest_typical_and_smallest_sizes() -> None:
    found = explain(small_plan())
    assert [(s.label, s.sizes["batch"]) for s in found] == [
        ("maximum", 8),
        ("typical", 2),
        ("typical", 4),
        ("minimum", 1),
    ]
    assert [s.arena for s in found] == [448 * 8, 448 * 2, 448 * 4, 448]
    assert all(s.lower_bound <= s.arena and s.waste == s.arena - s.lower_bound for s in found)


def test_sizes_that_are_the_same_are_explained_once() -> None:
    plan = small_plan()
    plan["dims"]["batch"] |= {"typical": [8, 1]}
    assert [(s.label, s.sizes["batch"]) for s in explain(plan)] == [("maximum", 8), ("typical", 1)]


def test_without_a_maximum_the_sizes_are_only_assumed() -> None:
    plan = small_plan(None)
    assert unbounded(plan) == ("batch",)
    assert explain(plan)[0].label == "assumed"
    assert unbounded(small_plan()) == ()


def test_a_dim_that_no_block_depends_on_needs_no_bound() -> None:
    plan = small_plan()
    plan["dims"]["steps"] = {"min": 1, "max": None, "typical": [], "reference": 1}
    assert unbounded(plan) == ()


def test_the_peak_is_where_most_is_alive_and_named_by_its_nodes() -> None:
    found = sized(small_plan(), "", {"batch": 8})
    assert (found.peak, found.peak_nodes) == (2, ("conv2",))
    assert found.lower_bound == (128 + 64 + 256) * 8
    assert [(b.name, b.nbytes) for b in found.live] == [("c", 2048), ("a", 1024), ("b", 512)]
    assert found.live[1].producer == ("conv1", "relu1")
    assert found.live[1].values == ("a", "a_flat")


def test_what_died_is_not_alive_at_a_later_peak() -> None:
    plan = small_plan()
    plan["blocks"][1]["bytes"] = "640*batch"
    plan["blocks"][0]["last"] = 1
    found = sized(plan, "", {"batch": 1})
    assert [b.name for b in found.live] == ["b", "c"]


def test_sizes_are_rounded_up_to_whole_lines_and_nothing_is_left_out_but_the_empty() -> None:
    plan = small_plan()
    plan["blocks"][1]["bytes"] = "65*batch"
    found = sized(plan, "", {"batch": 1})
    assert {b.name: b.nbytes for b in found.blocks} == {"a": 128, "b": 128, "c": 256}


def test_a_graph_without_free_dims_or_blocks_has_one_row() -> None:
    empty = {"arena": "0", "definitions": [], "blocks": [], "dims": {}, "items": []}
    (found,) = explain(empty)
    assert (found.label, found.arena, found.lower_bound, found.live) == ("", 0, 0, ())
