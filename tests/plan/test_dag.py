"""The build graph: order, neighbours and what it refuses."""

from __future__ import annotations

import random

import pytest

from cuvil_build.errors import Internal, InvalidPipeline, UnknownStep
from cuvil_build.plan.dag import Dag
from cuvil_build.plan.node import Node, Source, place_of


def node(step: str, *reads: str) -> Node:
    inputs = {f"in{index}": Source(read, "out") for index, read in enumerate(reads)}
    return Node(step, step.partition(":")[0], "m:f", {"out": f"{step}.txt"}, {"params": {}}, inputs)


DIAMOND = [node("a:x"), node("b:x", "a:x"), node("c:x", "a:x"), node("d:x", "b:x", "c:x"), node("e:x")]


def test_order_is_one_whatever_the_insertion() -> None:
    orders = set()
    for seed in range(20):
        nodes = list(DIAMOND)
        random.Random(seed).shuffle(nodes)
        orders.add(tuple(n.id for n in Dag(nodes)))
    assert orders == {("a:x", "b:x", "c:x", "d:x", "e:x")}


def test_neighbours_near_and_far() -> None:
    dag = Dag(DIAMOND)
    assert dag.before("d:x") == ["b:x", "c:x"]
    assert dag.after("a:x") == ["b:x", "c:x"]
    assert dag.ancestors(["b:x"]) == {"a:x", "b:x"}
    assert dag.descendants(["b:x"]) == {"b:x", "d:x"}
    assert dag.restricted({"a:x", "b:x"}).ids == ["a:x", "b:x"]


def test_a_cycle_is_named() -> None:
    with pytest.raises(InvalidPipeline, match="depend on each other"):
        iter(Dag([node("a:x", "b:x"), node("b:x", "a:x")]))


def test_two_steps_of_one_name_and_missing_ones_are_refused() -> None:
    with pytest.raises(InvalidPipeline, match="two steps are named 'e:x'"):
        Dag([*DIAMOND, node("e:x")])
    with pytest.raises(Internal, match="'zz:x', which is no step"):
        iter(Dag([node("a:x", "zz:x")]))
    with pytest.raises(UnknownStep) as error:
        Dag(DIAMOND)["a:y"]
    assert error.value.hint == "did you mean 'a:x'?"


def test_nodes_survive_json() -> None:
    for one in DIAMOND:
        assert Node.from_json(one.to_json()) == one


def test_ids_are_places() -> None:
    assert place_of("codegen:a/fp32/x64") == "codegen/a/fp32/x64"
    assert place_of("compile:v1.2-x") == "compile/v1.2-x"
    assert place_of("a:b c$d") == "a/b_c_d"
