import json
from pathlib import Path

import pytest

from cuvil_build.cli.main import main
from tests.toy_fixtures import Run
from tests.toy_project import Toy

TEXT = """\
version: 1
project: p
models:
  a: {source: a.onnx, tags: [edge]}
  b: {source: b.onnx}
targets: {x: {use: x86_64}, w: {use: wasm32-simd128}}
"""


def test_ls_lists_and_selects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cuvil.yaml").write_text(TEXT)
    assert main(["ls", "-C", str(tmp_path), "--format", "json"]) == 0
    ids = [v["id"] for v in json.loads(capsys.readouterr().out)]
    assert ids == ["a/fp32/w", "a/fp32/x", "b/fp32/w", "b/fp32/x"]
    assert main(["ls", "-C", str(tmp_path), "tag:edge,target:w"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["a/fp32/w"]


def test_ls_knows_what_is_modified(run: Run, built: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ls", "state:modified", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == []
    built.edit("models/b.txt", "kernel neg -x", "kernel neg 0-x")
    assert run("ls", "state:modified", "--format", "json") == 0
    assert [v["id"] for v in json.loads(capsys.readouterr().out)] == ["b/fp32/x64"]
    assert run("ls", "state:modified,target:web") == 0
    assert "fp32" not in capsys.readouterr().out
