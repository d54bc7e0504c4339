"""Scan: whole small graphs against the reference, after they have become loops."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from cuvil_build.cuir.locations import set_location
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.errors import CuvilError, InvalidModel, ShapeMismatch
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.passes.pipeline import IMPORT, run_passes
from cuvil_build.reference import run_reference
from tests.free_dims import declare_dims

from .run_graph import GuardFailed, run_graph

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'


def imported(text: str) -> ir.Model:
    model: ir.Model = ir.from_proto(parser.parse_model(HEAD + text))
    declare_dims(model)
    for number, node in enumerate(n for g in graphs_within(model.graph) for n in g):
        node.name = f"node{number}"
        set_location(node, "case", node.name, node.op_type, 26)
    return model


def check(text: str, feeds: Mapping[str, np.ndarray]) -> None:
    result = run_passes(imported(text), IMPORT)
    assert all(n.op_type != "Scan" for g in graphs_within(result.model.graph) for n in g)
    graph = lower_graph(result.model, result.inference, lambda value, rank: tuple(range(rank)))
    want = run_reference(parser.parse_model(HEAD + text), dict(feeds)).outputs
    for one, other in zip(run_graph(graph, feeds), want.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


BODY = """body = b (float[m] s, float[m] e) => (float[m] next, float[m] twice) {
    next = Add (s, e)
    twice = Add (next, next)
  }"""
SUM = """g (float[m] start, float[t, m] x) => (float[m] total, float[t, m] sums) {
  total, sums = Scan <num_scan_inputs = 1, OPTIONSBODY> (start, x)
}""".replace("BODY", BODY)
ACROSS = """g (float[m] start, float[m, t] x) => (float[m] total, float[m, t] sums) {
  total, sums = Scan <num_scan_inputs = 1, OPTIONSBODY> (start, x)
}""".replace("BODY", BODY)
X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize(
    "options",
    [
        "",
        "scan_input_directions = [1], ",
        "scan_output_directions = [1], ",
        "scan_input_directions = [1], scan_output_directions = [1], ",
    ],
)
def test_scan_runs_along_the_first_axis(options: str) -> None:
    check(SUM.replace("OPTIONS", options), {"start": np.ones(3, np.float32), "x": X})


@pytest.mark.parametrize("axis", ["1", "-1"])
def test_scan_runs_along_another_axis(axis: str) -> None:
    options = f"scan_input_axes = [{axis}], scan_output_axes = [{axis}], scan_input_directions = [1], "
    check(ACROSS.replace("OPTIONS", options), {"start": np.ones(3, np.float32), "x": X.T.copy()})


def test_scan_of_two_inputs_without_state_that_hands_an_element_on() -> None:
    text = """g (float[t, m] x, float[t, m] y) => (float[t, m] sums, float[t, m] same) {
  sums, same = Scan <num_scan_inputs = 2, body = b (float[m] p, float[m] q)
      => (float[m] sum, float[m] q) {
    sum = Add (p, q)
  }> (x, y)
}"""
    feeds = {"x": X, "y": X + 1}
    result = run_passes(imported(text), IMPORT)
    graph = lower_graph(result.model, result.inference, lambda value, rank: tuple(range(rank)))
    sums, same = run_graph(graph, feeds)
    np.testing.assert_array_equal(sums, feeds["x"] + feeds["y"])
    np.testing.assert_array_equal(same, feeds["y"])


def test_scan_within_a_scan_that_captures_an_outer_value() -> None:
    check(
        """g (float[t, k, m] x, float[m] w) => (float[t, m] sums) {
  sums = Scan <num_scan_inputs = 1, body = b (float[k, m] rows) => (float[m] weighted) {
    total, all = Scan <num_scan_inputs = 1, body = c (float[m] s, float[m] e) => (float[m] n, float[m] o) {
      scaled = Mul (e, w)
      n = Add (s, scaled)
      o = Identity (n)
    }> (w, rows)
    weighted = Mul (total, w)
  }> (x)
}""",
        {"x": np.arange(24, dtype=np.float32).reshape(4, 2, 3), "w": np.array([1, 2, 3], np.float32)},
    )


UNEQUAL = """g (float[FIRST, 2] x, float[SECOND, 2] y) => (float[n, 2] sums) {
  sums = Scan <num_scan_inputs = 2, body = b (float[2] p, float[2] q) => (float[2] sum) {
    sum = Add (p, q)
  }> (x, y)
}"""


def test_inputs_of_different_lengths_are_refused() -> None:
    with pytest.raises(ShapeMismatch, match="scanned inputs of 3 and 4"):
        run_passes(imported(UNEQUAL.replace("FIRST", "3").replace("SECOND", "4")), IMPORT)
    result = run_passes(imported(UNEQUAL.replace("FIRST", "t").replace("SECOND", "u")), IMPORT)
    graph = lower_graph(result.model, result.inference, lambda value, rank: tuple(range(rank)))
    with pytest.raises(GuardFailed, match="length of a scanned input"):
        run_graph(graph, {"x": np.ones((3, 2), np.float32), "y": np.ones((4, 2), np.float32)})


def test_lists_of_the_wrong_length_are_refused() -> None:
    error: type[CuvilError] = InvalidModel
    with pytest.raises(error, match="scan_input_axes"):
        run_passes(imported(SUM.replace("OPTIONS", "scan_input_axes = [0, 0], ")), IMPORT)
