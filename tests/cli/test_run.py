"""One call of a module from the command line: inputs from files, outputs to people, programs and files."""

from __future__ import annotations

import json
import os
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.bundle.golden import GoldenCase, write_golden
from cuvil_build.cli.main import main
from tests.toolchain.planned_module import build_planned
from tests.toolchain.tiny_module import expected, rows, target

Capture = pytest.CaptureFixture[str]

PROJECT = """\
version: 1
project: p
models: {tiny: {source: tiny.onnx}, other: {source: other.onnx}}
targets: {here: {use: x86_64}}
"""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("this CPU is no x86-64")
    return build_planned(target("x86_64"), tmp_path_factory.mktemp("native"))


@pytest.fixture
def folder(native: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose one module is built."""
    shutil.copytree(native, tmp_path / "build/tiny/fp32/here")
    (tmp_path / "cuvil.yaml").write_text(PROJECT)
    np.save(tmp_path / "x.npy", rows(3)["x"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_outputs_are_described_and_written(folder: Path, capsys: Capture) -> None:
    assert main(["run", "tiny", "--input", "x=x.npy", "--out", "out.npz"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "build/tiny/fp32/here on native: x 3x4"
    want = expected(rows(3)["x"])
    assert lines[2].split()[:3] == ["y", "float32", "3x4"]
    assert [float(n) for n in lines[2].split()[3:]] == [1, want["y"].mean().round(4), want["y"].max()]
    assert lines[3].split()[:3] == ["total", "int64", "scalar"]
    with np.load("out.npz") as written:
        assert sorted(written) == ["total", "y"]
        for name, array in want.items():
            np.testing.assert_array_equal(written[name], array, strict=True)


def test_a_folder_an_archive_and_json(folder: Path, capsys: Capture) -> None:
    np.savez("in.npz", x=rows(0)["x"])
    assert main(["run", "build/tiny/fp32/here", "--input", "in.npz", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["runner"] == "native"
    assert answer["outputs"][0] == {
        "output": "y",
        "dtype": "float32",
        "shape": [0, 4],
        "min": None,
        "mean": None,
        "max": None,
    }


def test_without_inputs_the_modules_own_sample_is_run(folder: Path, capsys: Capture) -> None:
    module = folder / "build/tiny/fp32/here"
    assert main(["run", "tiny"]) == 2
    assert "has no sample inputs" in capsys.readouterr().err
    write_golden(module / "golden.safetensors", [GoldenCase(rows(5), {})])
    assert main(["run", "tiny"]) == 0
    assert "x 5x4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["tiny", "--input", "z=x.npy"], 1, "error[invalid-samples]: array 'z' is no input of the model"),
        (["tiny", "--input", "x=cuvil.yaml"], 1, "cuvil.yaml: error[invalid-samples]: is no .npy file"),
        (["tiny", "--input", "x=none.npy"], 1, "none.npy: error[invalid-samples]: no such file"),
        (["tiny", "--input", "x=wide.npy"], 1, "x[1] is 5, expected 4"),
        (["tiny", "--input", "x=long.npy"], 1, "x[0] is 1001, outside rows = 0..1000"),
        (["*"], 2, "'*' selects 2 variants, and one is run"),
        (["other"], 2, "'cuvil build other/fp32/here' makes it"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, capsys: Capture, words: list[str], code: int, text: str) -> None:
    np.save("wide.npy", np.zeros((2, 5), np.float32))
    np.save("long.npy", np.zeros((1001, 4), np.float32))
    assert main(["run", *words]) == code
    assert text in capsys.readouterr().err


@pytest.mark.wasm
def test_what_this_machine_only_emulates_runs_too(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("node") and not os.environ.get("CI"):
        pytest.skip("no node on this machine")
    monkeypatch.chdir(tmp_path)
    build_planned(target("wasm32-simd128"), tmp_path / "module")
    np.save("x.npy", rows(2)["x"])
    assert main(["run", "module", "--input", "x=x.npy"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "module on wasmtime: x 2x4"
