"""Scan of opset 8 against onnxruntime, which still has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from cuvil_build.errors import InvalidModel
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.reference import run_reference
from tests.ops.run_graph import run_graph

SUM = """<ir_version: 4, opset_import: ["" : 8]>
g (int64[b] lengths, float[b, 2] start, float[b, t, 2] x) => (float[b, 2] total, float[b, t, 2] sums) {
  total, sums = Scan <num_scan_inputs = 1, DIRECTIONSbody = g1 (float[2] s, float[2] e)
      => (float[2] next, float[2] sum) {
    next = Add (s, e)
    sum = Identity (next)
  }> (LENGTHS, start, x)
}"""
X = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
START = np.ones((3, 2), np.float32)


@pytest.mark.parametrize("directions", ["", "directions = [1], "])
@pytest.mark.parametrize("lengths", [None, [4, 1, 3]])
def test_batches_and_lengths_of_sequences(tmp_path: Path, directions: str, lengths: list[int] | None) -> None:
    text = SUM.replace("DIRECTIONS", directions).replace("LENGTHS", "lengths" if lengths else '""')
    feeds = {"start": START, "x": X}
    if lengths:
        feeds["lengths"] = np.array(lengths)
    else:
        text = text.replace("int64[b] lengths, ", "")
    model = parser.parse_model(text)
    want = run_reference(model, feeds).outputs
    onnx.save(model, tmp_path / "scan.onnx")
    imported = import_onnx(tmp_path / "scan.onnx")
    graph = lower_graph(imported.model, imported.inference, lambda value, rank: tuple(range(rank)))
    for have, name in zip(run_graph(graph, feeds), ("total", "sums"), strict=True):
        np.testing.assert_allclose(have, want[name], rtol=1e-6)


def test_a_body_that_takes_another_number_of_values_is_refused(tmp_path: Path) -> None:
    model = parser.parse_model(SUM.replace("DIRECTIONS", "").replace("LENGTHS", "lengths"))
    del model.graph.node[0].attribute[1].g.input[:]
    onnx.save(model, tmp_path / "scan.onnx")
    with pytest.raises(InvalidModel):
        import_onnx(tmp_path / "scan.onnx")
