"""`cuvil explain quant` on a small project: losses, causes, lines to paste, and `--apply`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cuvil_build.cli.main import main
from tests.steps.built import FIXTURES

CONFIG = """\
version: 1
project: explained
models:
  net: {source: net.onnx, dims: {batch: {min: 1, max: 8, typical: [3]}}}
precision:
  fp32: {}
  w4: {weights: {type: int4, block: 32}, accept: {metric: sqnr, at_least: 190}} # four bits
  # the other one
  w8: {weights: int8}
targets: {x64: {use: x86_64}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("quant") / "project"
    found.mkdir()
    shutil.copyfile(FIXTURES / "mlp.onnx", found / "net.onnx")
    return found


def test_what_a_policy_loses_and_what_gets_it_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a policy whose loss is not accepted."""
    (folder / "cuvil.yaml").write_text(CONFIG)
    assert main(["explain", "quant", "-C", str(folder), "precision:w4", "--worst", "1"]) == 0
    text = capsys.readouterr().out
    assert "net/w4: weights of" in text and "4 bits: smaller blocks" in text
    assert 'keep: {float32: ["name:/' in text
    assert "  asked for: sqnr, at least 190; it is " in text and ", which is not enough\n" in text
    assert main(["explain", "quant", "-C", str(folder), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["precision"] for row in rows] == ["w4", "w8"]
    assert rows[0]["outputs"]["y"]["sqnr"] < rows[1]["outputs"]["y"]["sqnr"]


def test_apply_writes_the_lines_and_keeps_comments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cuvil.yaml").write_text(CONFIG)
    assert main(["explain", "quant", "-C", str(folder), "precision:w4", "--worst", "1", "--apply"]) == 0
    assert "cuvil.yaml: precision.w4 keeps name:/" in capsys.readouterr().err
    text = (folder / "cuvil.yaml").read_text()
    assert '}, keep: {float32: ["name:/' in text and "]}} # four bits\n" in text
    assert [a for a, b in zip(CONFIG.splitlines(), text.splitlines(), strict=True) if a != b] == [
        CONFIG.splitlines()[6]
    ]
    assert main(["build", "-C", str(folder), "precision:w4", "--until", "quantized_reference"]) == 3
    assert "'w4' loses too much: sqnr of output 'y'" in capsys.readouterr().err


def test_a_search_is_told_and_what_it_found_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    searched = CONFIG.replace("at_least: 190}", "at_least: 31, search: {budget: 9}}")
    (folder / "cuvil.yaml").write_text(searched)
    assert main(["explain", "quant", "-C", str(folder), "precision:w4"]) == 0
    text = capsys.readouterr().out
    assert "  search for sqnr, at least 31: " in text and "it holds" in text
    assert "of 9 trials; given up: " in text and "    float32 again: " in text
    assert main(["explain", "quant", "-C", str(folder), "precision:w4", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    patterns = [layer["pattern"] for layer in row["search"][-1]["layers"]]
    assert main(["explain", "quant", "-C", str(folder), "precision:w4", "--apply"]) == 0
    assert f"cuvil.yaml: precision.w4 keeps {', '.join(patterns)}" in capsys.readouterr().err
    assert main(["explain", "quant", "-C", str(folder), "precision:w4"]) == 0
    assert "nothing had to be restored" in capsys.readouterr().out
    assert main(["build", "-C", str(folder), "precision:w4", "--until", "quantized_reference"]) == 0
    capsys.readouterr()


def test_nothing_quantised_is_a_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cuvil.yaml").write_text(CONFIG)
    assert main(["explain", "quant", "-C", str(folder), "precision:fp32"]) == 2
    assert "nothing that is selected is quantised" in capsys.readouterr().err
