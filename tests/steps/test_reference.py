"""Step `reference` on the graph of a build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from cuvil_build.bundle.golden import read_golden
from cuvil_build.samples import InvalidSamples
from cuvil_build.steps.workers.tolerances import narrowest
from tests.steps.built import Built, tree


def test_the_cases_are_the_same_again(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("reference")
    job = net.again(node, tmp_path)
    for name, path in net.outputs(node).items():
        assert tree(job.outputs[name]) == tree(path)


def test_random_cases_cover_small_and_usual_sizes(net: Built) -> None:
    (node,) = net.nodes("reference")
    cases = read_golden(net.outputs(node)["cases"])
    assert [case.inputs["x"].shape for case in cases] == [(1, 20), (3, 20)]
    assert all(np.isfinite(array).all() for case in cases for array in case.outputs.values())


def test_given_samples_are_used_and_checked(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("reference")
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    np.savez(good, x=np.full((5, 20), 0.5, np.float32))
    np.savez(bad, x=np.zeros((5, 21), np.float32))
    job = net.again(node, tmp_path / "good", {"samples/0000": good})
    (case,) = read_golden(job.outputs["cases"])
    assert (case.inputs["x"] == 0.5).all()
    with pytest.raises(InvalidSamples, match="21"):
        net.again(node, tmp_path / "bad", {"samples/0000": bad})


def graph(dtype: str) -> ir.Model:
    text = f"""<ir_version: 10, opset_import: ["": 22]>
    g ({dtype}[n] x) => ({dtype}[n] y) {{ h = Cast <to = 10> (x)  y = CastLike (h, x) }}"""
    model: ir.Model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    return model


def test_graphs_that_compute_in_16_bits_are_held_to_some_roundings() -> None:
    assert narrowest(graph("float")) == 2.0**-10
    assert narrowest(graph("bfloat16")) == 2.0**-7
