"""Positions that data gives are looked at before kernels follow them."""

from __future__ import annotations

import numpy as np
import pytest

from .run_graph import GuardFailed, run_graph
from .test_loop import check, lowered

GRAPHS = {
    "Gather": "g (float[4, 3] x, int64[n] i) => (float[n, 3] y) { y = Gather (x, i) }",
    "GatherElements": "g (float[4, 3] x, int64[n, 3] i) => (float[n, 3] y) { y = GatherElements (x, i) }",
    "GatherND": "g (float[4, 3] x, int64[n, 2] i) => (float[n] y) { y = GatherND (x, i) }",
    "ScatterElements": """g (float[4, 3] x, int64[n, 3] i, float[n, 3] u) => (float[4, 3] y) {
  y = ScatterElements <axis = 0, reduction = "add"> (x, i, u) }""",
    "ScatterND": """g (float[4, 3] x, int64[n, 2] i, float[n] u) => (float[4, 3] y) {
  y = ScatterND (x, i, u) }""",
}
SHAPES = {
    "Gather": (2,),
    "GatherElements": (2, 3),
    "GatherND": (2, 2),
    "ScatterElements": (2, 3),
    "ScatterND": (2, 2),
}


def feeds(operator: str, index: int) -> dict[str, np.ndarray]:
    shape = SHAPES[operator]
    positions = np.zeros(shape, np.int64)
    positions[(1, *([0] * (len(shape) - 1)))] = index
    found = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "i": positions}
    if operator.startswith("Scatter"):
        found["u"] = np.ones((2, 3) if operator == "ScatterElements" else (2,), np.float32)
    return found


@pytest.mark.parametrize("operator", GRAPHS)
@pytest.mark.parametrize("index", [3, -4, 1])
def test_the_first_and_the_last_are_inside(operator: str, index: int) -> None:
    check(GRAPHS[operator], feeds(operator, index))


@pytest.mark.parametrize("operator", GRAPHS)
@pytest.mark.parametrize("index", [4, -5, 2**40, -(2**63)])
def test_one_outside_ends_the_run(operator: str, index: int) -> None:
    _, graph = lowered(GRAPHS[operator])
    with pytest.raises(GuardFailed, match=r"the largest index of node .* is \d+, allowed -1..3"):
        run_graph(graph, feeds(operator, index))


def test_no_index_is_no_mistake() -> None:
    _, graph = lowered(GRAPHS["Gather"])
    (found,) = run_graph(graph, {"x": np.zeros((4, 3), np.float32), "i": np.zeros(0, np.int64)})
    assert found.shape == (0, 3)


def test_indices_known_at_build_time_are_not_looked_at_again() -> None:
    _, graph = lowered("g (float[4, 3] x) => (float[2, 3] y) <int64[2] i = {0, 3}> { y = Gather (x, i) }")
    assert len(graph.body.items) == 1
