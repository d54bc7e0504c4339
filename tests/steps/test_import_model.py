"""Import holds its graph against the source model, and names the pass that changes numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from cuvil_build.cuir.weights import load_graph
from cuvil_build.errors import VerificationFailed
from cuvil_build.passes import pipeline
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite
from cuvil_build.steps.workers import import_model
from tests.steps.import_jobs import job

FIXTURES = Path(__file__).parent.parent / "fixtures"


def run(folder: Path, name: str, log: list[str], every_pass: bool = True) -> Path:
    source = folder / "source"
    source.mkdir()
    shutil.copyfile(FIXTURES / f"{name}.onnx", source / "model.onnx")
    params = {
        "model": name,
        "label": f"{name}.onnx",
        "dims": {"batch": [1, 4, [2], 1]},
        "outputs": None,
        "every_pass": every_pass,
    }
    outputs = {"graph": folder / "out/graph.onnx", "report": folder / "out/import.json"}
    task = job(f"import_model:{name}", params, {"model": source}, outputs, log)
    import_model.run(task)
    model = load_graph(outputs["graph"], task.blobs)
    assert all(
        v.const_value is not None and np.asarray(v.const_value.numpy()).size
        for v in model.graph.initializers.values()
    )
    return outputs["report"]


def test_the_graph_is_compared_with_its_source(tmp_path: Path) -> None:
    log: list[str] = []
    report = json.loads(run(tmp_path, "mlp", log).read_text())
    assert report["dims"]["batch"]["max"] == 4 and report["opset"] == {"file": 17, "graph": 26}
    assert any("compared with the source model on 2 cases" in line for line in log)


def test_a_pass_that_changes_numbers_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def scale(model: ir.Model) -> PassResult:
        value = next(v for v in model.graph.initializers.values() if v.const_value.dtype.is_floating_point())
        value.const_value = ir.Tensor(value.const_value.numpy() * 1.5, name=value.name)
        return PassResult(model, (Rewrite("scales a weight", ()),))

    passes = pipeline.all_passes()
    monkeypatch.setattr(
        pipeline, "all_passes", lambda: passes | {"merge-constants": GraphPass("merge-constants", scale)}
    )
    with pytest.raises(VerificationFailed, match="pass 'merge-constants' changed what the model computes"):
        run(tmp_path, "mlp", [])
