"""`cuvil inspect`: what a model has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuvil_build.cli.main import main

MODEL = str(Path(__file__).parent.parent / "fixtures" / "mlp.onnx")
Capture = pytest.CaptureFixture[str]


def test_a_file_is_shown_with_its_dims_and_operators(capsys: Capture) -> None:
    assert main(["inspect", MODEL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "inputs:" in lines and "operators:" in lines
    assert any(line.split() == ["x", "float32[batch,", "20]"] for line in lines)
    assert any(line.split()[:2] == ["batch", "1.."] for line in lines)


def test_json_has_the_same_sections(capsys: Capture) -> None:
    assert main(["inspect", MODEL, "--format", "json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["operators"]["Gemm"] == 2
    assert summary["graph"]["nodes"] == sum(summary["operators"].values())
    assert list(summary["outputs"]) == ["y"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert main(["inspect", str(tmp_path / "none.onnx")]) != 0
    assert "none.onnx" in capsys.readouterr().err
