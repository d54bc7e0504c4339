"""Random graphs against the reference: a few here, thousands by `python -m tests.differential.run`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from onnx import checker

from tests.conformance.suite import Settings
from tests.differential.generate import generate
from tests.differential.run import is_disputed, run

IN_CI = range(30)


def test_random_graphs_compute_what_the_reference_does(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "modules", tmp_path / "objects")
    wrong = [
        f"{result.name}: {result.status} at {result.stage}: {result.message}"
        for random, result in run(IN_CI, settings)
        if result.status != "pass" and not is_disputed(random)
    ]
    assert wrong == []


def test_a_seed_always_gives_the_same_graph() -> None:
    one, other = generate(7), generate(7)
    assert one.model.SerializeToString() == other.model.SerializeToString()
    assert all(np.array_equal(a, b) for a, b in zip(one.expected, other.expected, strict=True))


def test_graphs_are_valid_and_many_sided() -> None:
    graphs = [generate(seed) for seed in range(60)]
    for graph in graphs:
        checker.check_model(graph.model)
    operators = Counter(node.op_type for graph in graphs for node in graph.model.graph.node)
    assert len(operators) >= 60
    dtypes = {array.dtype.name for graph in graphs for array in graph.feeds.values()}
    assert {"float32", "float64", "float16", "int64", "bool", "uint8"} <= dtypes
