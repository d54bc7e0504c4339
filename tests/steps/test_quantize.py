"""Step `quantize`: shared by all targets of a policy, with calibration data among its ingredients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from cuvil_build.errors import MissingFile
from tests.steps.quantising import CONFIG, build, project


def test_one_quantisation_serves_all_targets_and_fp32_has_none(root: Path) -> None:
    steps = [node.id for node in project(root).plan().plan.dag]
    found = [step for step in steps if step.startswith("quantize")]
    assert found == ["quantize:net/int8", "quantized_reference:net/int8"]


def test_the_plain_graph_runs_elsewhere_and_the_loss_is_written(root: Path) -> None:
    result = build(root)
    assert result.ok, [failure.error for failure in result.failures]
    (node,) = [n for n in result.plan.dag if n.kind == "quantize"]
    files = {name: root / path for name, path in node.outputs.items()}
    session = ort.InferenceSession(files["plain"].read_bytes(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.zeros((2, 20), np.float32)})
    loss = json.loads(files["loss"].read_text())["outputs"]
    assert all(row["sqnr"] > 20 for row in loss.values())
    report = json.loads(files["report"].read_text())
    assert report["calibration_samples"] == 8 and report["nodes"] and report["weights"]
    assert json.loads(files["warnings"].read_text()) == ["'name:nobody*' matches no node"]


def test_calibration_data_are_ingredients(root: Path) -> None:
    assert build(root).ok
    assert not build(root).ran
    np.savez(root / "calib" / "b.npz", x=np.full((1, 20), 9, np.float32))
    assert "quantize:net/int8" in build(root).ran
    assert "quantize:net/int8" in build(root, CONFIG.replace("samples: 8", "samples: 7")).ran


def test_a_new_calibration_file_is_seen_without_a_plan(root: Path) -> None:
    assert "calib/*.npz" in project(root)._patterns()


def test_missing_calibration_data_have_a_place(root: Path) -> None:
    with pytest.raises(MissingFile, match="no file matches 'gone") as caught:
        project(root, CONFIG.replace("calib/*", "gone/*")).plan()
    assert caught.value.loc.line == 9


def test_without_data_of_any_kind_a_warning_is_loud(root: Path) -> None:
    result = build(root, CONFIG.replace("data: calib/*.npz, ", ""))
    (node,) = [n for n in result.plan.dag if n.kind == "quantize"]
    assert any("RANDOM" in line for line in json.loads((root / node.outputs["warnings"]).read_text()))


def test_a_generator_of_the_project(root: Path) -> None:
    (root / "calib" / "make.py").write_text(
        "import numpy as np\ndef rows():\n    while True:\n        yield np.ones((1, 20), np.float32)\n"
    )
    config = CONFIG.replace("calib/*.npz", "'calib.make:rows'")
    assert build(root, config).ok
    (root / "calib" / "make.py").write_text("def row():\n    yield 1\n")
    failed = build(root, config)
    assert "no function 'rows'" in failed.failures[0].error


def test_the_gate_fails_the_build(root: Path) -> None:
    config = CONFIG.replace("    keep:", "    accept: {metric: sqnr, at_least: 150}\n    keep:")
    result = build(root, config)
    assert "loses too much: sqnr of output" in result.failures[0].error
