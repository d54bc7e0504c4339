"""`cuvil explain schedule` on a small project: figures that add up, in words and as data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cuvil_build.cli.main import main
from tests.steps.built import FIXTURES

CONFIG = """\
version: 1
project: explained
models:
  net: {source: net.onnx, dims: {batch: {min: 1, max: 8}}}
targets:
  x64: {use: x86_64}
"""
Ask = Callable[..., str]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain") / "project"
    folder.mkdir()
    shutil.copyfile(FIXTURES / "mlp.onnx", folder / "net.onnx")
    (folder / "cuvil.yaml").write_text(CONFIG)
    return folder


@pytest.fixture
def ask(project: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def run(*words: str) -> str:
        assert main(["explain", "schedule", "-C", str(project), *words]) == 0
        return capsys.readouterr().out

    return run


def test_text_says_what_each_kernel_runs_by_and_its_limit(ask: Ask) -> None:
    text = ask("net")
    assert text.startswith("net/fp32/x64: 3 kernels, 3 calls")
    assert text.count("runs by") == 3 and "tiles of" in text and "vectors of 4" in text
    assert "cycles predicted; at least" in text and "of weights" in text
    assert " us predicted" in ask("net", "--ghz", "3")


def test_json_has_figures_that_add_up(ask: Ask) -> None:
    (found,) = json.loads(ask("net", "--format", "json", "--ghz", "2"))
    rows = found["kernels"]
    assert found["variant"] == "net/fp32/x64" and len(rows) == 3
    assert found["predicted_cycles"] == sum(r["calls"] * r["predicted_cycles"] for r in rows)
    assert sum(r["share"] for r in rows) == pytest.approx(1)
    assert found["predicted_us"] == pytest.approx(found["predicted_cycles"] / 2000)
    for row in rows:
        assert row["predicted_cycles"] >= row["limit_cycles"] > 0
        assert row["parts"][0]["schedule"]["kind"] == "tiles" and not row["parts"][0]["tuned"]
        assert len(row["key"]) == 16 and row["nodes"] and row["flops"] > 0
    # of the model: x[8, in] times weights and biases, each once
    assert sum(r["weight_bytes"] for r in rows) == sum(4 * int(n) for n in _parameters(FIXTURES / "mlp.onnx"))


def _parameters(path: Path) -> list[int]:
    import onnx_ir as ir

    graph = ir.load(path).graph
    return [value.const_value.size for value in graph.initializers.values() if value.const_value is not None]


def test_measured_times_and_the_distance_to_the_limit(ask: Ask, project: Path) -> None:
    (found,) = json.loads(ask("net", "--format", "json"))
    profile = [{"kernel": row["kernel"], "ns": 1000.0 * (n + 1)} for n, row in enumerate(found["kernels"])]
    file = project / "profile.json"
    file.write_text(json.dumps([{"module": "net/fp32/x64", "profile": profile}, {"module": "other"}]))
    (measured,) = json.loads(ask("net", "--format", "json", "--ghz", "1", "--measured", str(file)))
    last = measured["kernels"][-1]
    assert last["measured_us"] == 3.0
    assert last["of_limit"] == pytest.approx(last["limit_cycles"] / 3000)
    text = ask("net", "--ghz", "1", "--measured", str(file))
    lines = text.splitlines()
    assert lines[2].startswith(found["kernels"][-1]["kernel"])  # the slowest as measured comes first
    assert "% of the limit" in text and "GFLOP/s" in text


@pytest.mark.parametrize("content", ["{", "[{}, 3]", '[{"module": "a", "profile": [{"kernel": 1}]}]'])
def test_what_is_no_profile_is_said(project: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "bad.json").write_text(content)
    words = ["explain", "schedule", "-C", str(project), "--measured", str(project / "bad.json")]
    assert main(words) == 2
    assert "is no profile" in capsys.readouterr().err
