"""Step `quantize`: shared by all targets of a policy, with calibration data among its ingredients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from cuvil_build.api import Options
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


METRIC = """\
import numpy as np


def worst(outputs, labels):
    return float(np.abs(outputs["y"] - labels["right"]).max())
"""
WITH_METRIC = CONFIG.replace("typical: [3]}}}", "typical: [3]}}, samples: data/*.npz}").replace(
    "    keep:", "    accept: {metric: 'checks.metric:worst', at_most: 1000}\n    keep:"
)


def write_metric(root: Path, text: str = METRIC) -> None:
    for folder in ("checks", "data"):
        (root / folder).mkdir(exist_ok=True)
    (root / "checks/metric.py").write_text(text)
    x = np.random.default_rng(1).standard_normal((4, 20)).astype(np.float32)
    np.savez(root / "data/a.npz", x=x, right=np.float32(0))


def test_a_metric_of_the_project_is_an_ingredient_of_the_gate_alone(root: Path) -> None:
    write_metric(root)
    assert build(root, WITH_METRIC).ok
    assert not build(root, WITH_METRIC).ran
    write_metric(root, METRIC.replace("max()", "max() + 1"))
    assert build(root, WITH_METRIC).ran == ("quantized_reference:net/int8",)
    assert "checks/metric.py" in project(root, WITH_METRIC)._patterns()


def test_a_metric_below_its_floor_fails_and_says_what_float32_has(root: Path) -> None:
    write_metric(root)
    result = build(root, WITH_METRIC.replace("at_most: 1000", "at_most: 0.001"))
    assert result.exit_code == 3
    assert "checks.metric:worst is " in result.failures[0].error
    assert "at most 0.001 is allowed; the float32 model has " in result.failures[0].error


def test_a_mistake_in_a_metric_has_its_line(root: Path) -> None:
    write_metric(root, METRIC.replace('["right"]', '["rihgt"]'))
    error = build(root, WITH_METRIC).failures[0].error
    assert "checks/metric.py:5: error[project-function]: KeyError: 'rihgt'" in error
    assert "no input of the model: right" in error


def test_a_metric_that_is_not_there_has_a_place(root: Path) -> None:
    with pytest.raises(MissingFile, match=r"no file 'checks/metric\.py'") as caught:
        project(root, WITH_METRIC.replace("data/*.npz", "calib/*.npz")).plan()
    assert caught.value.loc.line == 10


def test_a_search_restores_what_the_gate_needs(root: Path) -> None:
    accept = "    accept: {metric: sqnr, at_least: 45, search: {budget: 12}}\n    keep:"
    config = CONFIG.replace("    keep:", accept)
    result = build(root, config)
    assert result.ok, [failure.error for failure in result.failures]
    (node,) = [n for n in result.plan.dag if n.kind == "quantize"]
    *trials, end = map(json.loads, (root / node.outputs["search"]).read_text().splitlines())
    assert not trials[0]["holds"] and end["holds"] and end["layers"]
    assert {layer["node"] for layer in end["layers"]} == set(end["restored"])
    report = json.loads((root / node.outputs["report"]).read_text())
    assert not {row["node"] for row in report["nodes"]} & set(end["restored"])
    assert report["outputs"]["y"]["sqnr"] >= 45
    failed = build(root, config.replace("45", "190").replace("12", "1"))
    assert failed.exit_code == 3
    assert "after a search of 1 trials: it does not hold, and the budget ended" in failed.failures[0].error


def test_codes_by_what_products_read_and_channels_that_move(root: Path) -> None:
    before, _, rest = CONFIG.partition("  int8:")
    targets = rest[rest.index("targets:") :]
    policies = (
        "  gptq: {weights: {type: int4, block: 16, method: gptq}, "
        "activations: {type: float32, calibrate: {data: calib/*.npz}}}\n"
        "  smooth: {weights: int8, activations: {type: uint8, calibrate: {data: calib/*.npz}}, smooth: 0.5}\n"
    )
    made = project(root, before + policies + targets)
    result = made.build([], until="quantized_reference", options=Options(jobs=1))
    assert result.ok, [failure.error for failure in result.failures]
    steps = {n.id: n for n in result.plan.dag if n.kind == "quantize"}
    gptq, smooth = (
        json.loads((root / steps[f"quantize:net/{p}"].outputs["report"]).read_text())
        for p in ("gptq", "smooth")
    )
    assert {row["method"] for row in gptq["weights"]} == {"gptq"} and gptq["smoothed"] == []
    found = {row["value"]: row for row in smooth["smoothed"]}
    assert found["x"]["why"] == "it is an input" and found["relu_1"]["makers"] == ["/gemm_0"]
    assert all(loss["sqnr"] > 20 for loss in smooth["outputs"].values())
    assert all(row["alone"]["sqnr"] > 20 for row in smooth["nodes"])
