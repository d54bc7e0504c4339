"""Precision policies of the quickstart: modules right by their own graphs, and still accurate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import cuvil
from cuvil_build.api import Options, Project
from cuvil_build.cli.main import main
from cuvil_build.comparison import sqnr
from tests.e2e.quickstart import copy_quickstart
from tests.e2e.workshop import Workshop

POLICIES = """\
precision:
  fp32: {}
  int8: {weights: int8, activations: {type: uint8, calibrate: {method: entropy}}}
  dynamic: {weights: int8, activations: {type: uint8, dynamic: true}}
  w4: {weights: {type: int4, block: 32, scale: float16}, accept: {metric: "checks:accuracy", at_least: 0.9}}
  found:
    weights: {type: int4, block: 32, scale: float16}
    accept: {metric: sqnr, at_least: 24, search: {budget: 6}}
  u4: {weights: {type: uint4, block: 16}}
  w4a8: {weights: {type: int4, block: 32, scale: float16}, activations: {type: int8, dynamic: true}}
  fp16: {weights: float16, activations: float16}
  bf16: {weights: bfloat16, activations: bfloat16}
"""
CHECKS = """\
def accuracy(outputs, labels):
    return (outputs["logits"].argmax(axis=1) == labels["digit"]).mean()
"""
NARROW = ("int8", "dynamic", "w4", "u4", "w4a8", "fp16", "bf16")
TARGETS = ("x64", "pi", "web")
FEW = 40
"""Images that every module is verified with: an emulator has to run them, too."""
CASES = [*((policy, target) for target in TARGETS for policy in NARROW), ("found", "x64")]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, workshop: Workshop) -> Path:
    """Built for all of CASES, and in float32 natively."""
    folder = copy_quickstart(tmp_path_factory.mktemp("precision") / "quickstart")
    file = folder / "cuvil.yaml"
    builds = "\n".join(
        f"  - {{model: digits, precision: {p}, target: {t}}}" for p, t in [("fp32", "x64"), *CASES]
    )
    (folder / "checks.py").write_text(CHECKS)
    (digits,) = np.load(folder / "data/labels.npz").values()
    (images,) = np.load(folder / "data/heldout.npz").values()
    np.savez(folder / "data/few.npz", image=images[:FEW], digit=digits.reshape(-1)[:FEW])
    text = file.read_text().replace("data/heldout.npz", "data/few.npz")
    text = text.replace("    labels: {file: data/labels.npz, output: logits}\n", "")
    before, rest = text.split("precision:\n  fp32: {}\n")
    targets = rest.partition("builds:")[0]
    file.write_text(f"{before}{POLICIES}{targets}builds:\n{builds}\n")
    result = Project.load(folder, environ=workshop.environ).build([], options=Options(jobs=2))
    assert result.ok, result.failures
    return folder


def logits_of(project: Path, policy: str) -> np.ndarray:
    images = np.load(project / "data/heldout.npz")
    with cuvil.load(project / f"build/digits/{policy}/x64") as module:
        return module.run(dict(images))["logits"]


def accuracy(project: Path, logits: np.ndarray) -> float:
    (labels,) = np.load(project / "data/labels.npz").values()
    return float(np.mean(np.argmax(logits, axis=1) == labels.reshape(-1)))


@pytest.mark.parametrize("policy", NARROW)
def test_images_that_training_never_saw_are_told_apart_as_before(project: Path, policy: str) -> None:
    whole = accuracy(project, logits_of(project, "fp32"))
    assert accuracy(project, logits_of(project, policy)) >= whole - 0.005


@pytest.mark.parametrize("policy", NARROW)
def test_the_quantised_graph_runs_elsewhere_and_gives_the_same(project: Path, policy: str) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    graph = project / f"build/digits/{policy}/x64/quantized.onnx"
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    (want,) = session.run(["logits"], dict(np.load(project / "data/heldout.npz")))
    have = logits_of(project, policy)
    assert sqnr(have, want) >= 40
    assert np.array_equal(np.argmax(have, axis=1), np.argmax(want, axis=1))


@pytest.mark.parametrize(("policy", "target"), CASES, ids=["-".join(case) for case in CASES])
def test_modules_of_every_target_are_verified(project: Path, policy: str, target: str) -> None:
    report = json.loads((project / f"build/digits/{policy}/{target}/reports/verify.json").read_text())
    assert report["runners"] and report["cases"] == 1 and report["kernels"]["checked"] > 3
    # a few dB less where the last place of an input tips bytes
    assert 35 <= report["least_sqnr"] <= 40 and report["loss"]


def test_what_a_search_restored_ships_with_the_module(project: Path) -> None:
    reports = project / "build/digits/found/x64/reports"
    *trials, end = map(json.loads, (reports / "search.jsonl").read_text().splitlines())
    assert not trials[0]["holds"] and end["holds"]
    assert [layer["pattern"] for layer in end["layers"]] == ["name:head"]
    loss = json.loads((reports / "verify.json").read_text())["loss"]
    assert min(row["sqnr"] for row in loss.values()) >= 24
    assert not (project / "build/digits/w4/x64/reports/search.jsonl").exists()


def test_policies_stand_side_by_side(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ["fp32", "int8", "w4"]
    words = ["bench", "--matrix", "-C", str(project), "target:web", "--rounds", "1"]
    native = [f"precision:{name},target:x64" for name in shown]
    assert main([*words, *native, "--format", "json"]) == 0
    here, web = sorted(json.loads(capsys.readouterr().out), key=lambda t: str(t["target"]), reverse=True)
    assert [row["precision"] for row in here["rows"]] == shown
    assert [row["precision"] for row in web["rows"]] == [*NARROW]
    assert here["accuracy"] == web["accuracy"] == "checks:accuracy"
    for row in here["rows"]:
        assert row["accuracy"] >= 0.9
        assert row["ms"] > 0 and row["peer_ms"] > 0 and not row["problem"]
        assert row["weights_bytes"] > 0 and row["code_bytes"] > 0 and row["sqnr"] > 15
    for row in web["rows"]:
        assert row["ms"] is None and row["sqnr"] > 15
    found = {row["precision"]: row for row in here["rows"]}
    assert found["fp32"]["sqnr"] > 100 > found["int8"]["sqnr"] and found["fp32"]["to_float32"] == 1
    assert found["w4"]["weights_bytes"] < found["int8"]["weights_bytes"] < found["fp32"]["weights_bytes"]
    assert main([*words, "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "### digits for web" in lines and sum(line.startswith("| int8 | ") for line in lines) == 1


def test_weights_take_fewer_bytes(project: Path) -> None:
    sizes = {
        p: (project / f"build/digits/{p}/x64/weights.safetensors").stat().st_size
        for p in ("fp32", "int8", "w4")
    }
    assert sizes["w4"] < sizes["int8"] < sizes["fp32"] / 2
