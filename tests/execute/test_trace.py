"""Traces: lanes do not overlap, and the critical path is the longest chain."""

from __future__ import annotations

import json

from cuvil_build.execute.events import Ended
from cuvil_build.execute.trace import chrome_trace, critical_path
from cuvil_build.plan.node import Node, Source


def ended(step: str, start: float, seconds: float) -> Ended:
    return Ended(step, step, "ok", start + seconds, seconds)


def node(step: str, *reads: str) -> Node:
    return Node(step, "k", "m:f", {}, {}, {read: Source(read, "out") for read in reads})


NODES = {n.id: n for n in (node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"))}
EVENTS = [ended("a", 10, 1), ended("b", 11, 5), ended("c", 11, 2), ended("d", 16, 1)]


def test_the_critical_path_is_the_longest_chain() -> None:
    path = critical_path(EVENTS, NODES)
    assert path.steps == ("a", "b", "d")
    assert path.seconds == 7


def test_steps_that_did_not_run_are_not_on_it() -> None:
    assert critical_path(EVENTS[2:3], NODES).steps == ("c",)
    assert critical_path([], NODES).steps == ()


def test_lanes_do_not_overlap() -> None:
    rows = json.loads(chrome_trace(EVENTS, 10.0))["traceEvents"]
    assert [(row["name"], row["tid"], row["ts"]) for row in rows] == [
        ("a", 1, 0), ("b", 1, 1_000_000), ("c", 2, 1_000_000), ("d", 1, 6_000_000),
    ]  # fmt: skip
