"""Some random graphs in each test run; `python -m tests.fusion_graphs.run` runs thousands."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from cuvil_build.comparison import compare
from cuvil_build.fusion.rule import load_rule
from cuvil_build.reference import decide_float64
from tests.fusion_graphs import check as checks
from tests.fusion_graphs.check import check, shipped_rules
from tests.fusion_graphs.generate import RandomGraph, generate, operators
from tests.fusion_graphs.net import names_read

COUNT = 30


@pytest.fixture(scope="module")
def graphs() -> list[RandomGraph]:
    return [generate(seed) for seed in range(COUNT)]


def test_random_graphs_compute_the_same_fused_and_unfused(graphs: list[RandomGraph], tmp_path: Path) -> None:
    rules = shipped_rules()
    outcomes = [check(g, rules, tmp_path, in_memory=g.seed % 3 == 0) for g in graphs]
    assert [f"{o.seed}: {o.stage}: {o.message}" for o in outcomes if o.stage] == []
    fired = sum((o.fired for o in outcomes), Counter[str]())
    assert len(fired) >= 6 and fired.total() >= 3 * COUNT
    assert sum((o.refused for o in outcomes), Counter[str]()).total() >= COUNT


def test_graphs_have_what_rules_may_trip_over(graphs: list[RandomGraph]) -> None:
    used = Counter[str]()
    for graph in graphs:
        used.update(operators(graph.model).keys())
    assert len(used) >= 30
    assert any(d.dim_param for g in graphs for v in g.model.graph.input for d in v.type.tensor_type.shape.dim)
    # values inside that are outputs and are read as well
    assert any(
        {v.name for v in g.model.graph.output} & {n for node in g.model.graph.node for n in node.input}
        for g in graphs
    )


def test_the_same_seed_gives_the_same_graph(graphs: list[RandomGraph]) -> None:
    again = generate(3)
    assert again.model.SerializeToString() == graphs[3].model.SerializeToString()
    assert all(np.array_equal(again.feeds[name], array) for name, array in graphs[3].feeds.items())


def test_a_wrong_rule_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here one that takes a cheaper function for another: what this run is for."""
    x = onnx.helper.make_tensor_value_info("x", 1, ["batch", 8])
    y = onnx.helper.make_tensor_value_info("y", 1, ["batch", 8])
    body = onnx.helper.make_graph([onnx.helper.make_node("Tanh", ["x"], ["y"], name="t")], "g", [x], [y])
    model = onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    feeds = {"x": np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)}
    graph = RandomGraph(0, model, feeds, ())
    assert check(graph, shipped_rules(), tmp_path).stage == ""
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "name: wrong\ndescription: Not a tanh.\ngranularity: operator\nstage: fold\n"
        "pattern: |\n  (x) => (y) { y = Tanh(x) }\n"
        "action:\n  replace_with: |\n    (x) => (y) { y = Relu(x) }\ntrust: 1.0\n"
    )
    outcome = check(graph, [*shipped_rules(), load_rule(file)], tmp_path)
    assert outcome.stage == "fused" and outcome.fired["wrong"] == 1
    # and a kernel that is wrong, where the graph is right
    monkeypatch.setattr(checks, "run_poisoned", lambda fused, given: [np.zeros((2, 8), np.float32)])
    assert check(graph, shipped_rules(), tmp_path).stage == "unfused in memory"


CANCELS = """<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 12] x) => (float[batch, 1] y, float[batch, 12] z)
  <float twelfth = {0.083333336}, int64[1] last = {-1}>
  { s = ReduceSum(x, last)  m = Mul(s, twelfth)  z = Sub(x, m)  y = ReduceMean(z, last) }"""


def cancelling() -> RandomGraph:
    """The mean of deviations from a mean: rounding, and the error of a constant, are all that is left."""
    x = np.random.default_rng(0).normal(1, 1, (2, 12)).astype(np.float32)
    return RandomGraph(0, onnx.parser.parse_model(CANCELS), {"x": x}, ())


def test_what_cancels_is_held_to_what_is_known_of_it(tmp_path: Path) -> None:
    outcome = check(cancelling(), shipped_rules(), tmp_path)
    assert (outcome.stage, outcome.fired["mean-as-sum"]) == ("", 1)


@pytest.mark.parametrize(
    ("name", "error", "passes"), [("y", 1e-8, True), ("y", 1e-5, False), ("z", 1e-3, False)]
)
def test_no_more_than_that_is_forgiven(name: str, error: float, passes: bool) -> None:
    graph = cancelling()
    truth = decide_float64(graph.model, graph.feeds).outputs
    got = {n: a + error if n == name else a for n, a in truth.items()}
    found = compare(got, truth, checks.TOLERANCE)
    assert not found.passed
    assert checks._but_for_what_is_unknown(found, graph, truth).passed == passes


def test_inputs_that_a_body_reads_are_inputs() -> None:
    body = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x0"], ["n"])], "then", [], [])
    node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    assert set(names_read([node])) == {"c", "x0"}
