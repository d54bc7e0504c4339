"""`toolchain: system`: whole modules by the compiler of the machine, and what it cannot build."""

from __future__ import annotations

import json
import os
import platform
import shutil
from pathlib import Path

import pytest

from cuvil_build.api import Options, Project
from cuvil_build.errors import NotYet
from cuvil_build.plan import state

MODEL = Path(__file__).parents[1] / "fixtures" / "mlp.onnx"
CONFIG = """\
version: 1
project: system
models: {mlp: {source: mlp.onnx, dims: {batch: {min: 1, max: 8}}}}
targets: {here: {use: x86_64}, pi: {use: aarch64-neon}, web: {use: wasm32-simd128}}
toolchain: system
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not shutil.which("gcc") or platform.machine() != "x86_64":
        pytest.skip("no gcc for x86-64 on this machine")
    monkeypatch.delenv("CC", raising=False)
    shutil.copyfile(MODEL, tmp_path / "mlp.onnx")
    (tmp_path / "cuvil.yaml").write_text(CONFIG)
    return tmp_path


def test_a_module_by_gcc_is_verified_and_watched(folder: Path) -> None:
    project = Project.load(folder)
    result = project.build(["target:here"], options=Options(jobs=1))
    assert result.ok, [failure.error for failure in result.failures]
    manifest = json.loads((folder / "build/mlp/fp32/here/manifest.json").read_text())
    assert manifest["tier"] == "run"
    assert sorted(manifest["tools"]) == ["cuvil", "gcc"]
    words = ["-C", str(folder), "target:here"]
    project.remember(words, result, ["target:here"])
    environ = dict(os.environ)
    assert state.up_to_date(words, environ) is not None
    assert state.up_to_date(words, {**environ, "PATH": f"/elsewhere:{environ['PATH']}"}) is None
    assert state.up_to_date(words, {**environ, "CC": "clang"}) is None


@pytest.mark.parametrize(("target", "name"), [("pi", "aarch64-neon"), ("web", "wasm32-simd128")])
def test_what_the_system_compiler_cannot_build_is_said_before_anything_runs(
    folder: Path, target: str, name: str
) -> None:
    with pytest.raises(NotYet, match=f"'toolchain: system' for target '{name}'") as caught:
        Project.load(folder).build([f"target:{target}"])
    assert "toolchain: zig" in caught.value.hint
    assert not (folder / "build").exists()
