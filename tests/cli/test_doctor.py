import json
from importlib import metadata
from pathlib import Path

import pytest

from cuvil_build.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_doctor_names_tools_and_the_targets_that_need_them(capsys: Capture) -> None:
    assert main(["doctor", "--format", "json"]) in (0, 1)
    text = capsys.readouterr().out
    found = {row["tool"]: row for row in json.loads(text)}
    assert found["ziglang"]["version"] == metadata.version("ziglang")
    assert "aarch64-neon" in found["qemu-aarch64"]["needed_for"]
    assert "wasm32-simd128" in found["wasmtime"]["needed_for"]
    assert str(Path.home()) not in text


def test_a_required_tool_that_is_missing_fails(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "pip install ziglang" in out
    assert "apt install qemu-user" in out
    assert "missing: ziglang, ninja, onnx, onnx-ir, onnxruntime, numpy" in out
