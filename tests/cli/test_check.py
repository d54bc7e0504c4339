"""`cuvil check`, `cuvil inspect` and `cuvil export` on a project in a temporary folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from cuvil_build.cli.main import main

FIXTURES = Path(__file__).parent.parent / "fixtures"
CONFIG = """version: 1
project: p
models:
  good: {source: good.onnx, dims: {batch: {min: 1, max: 16}}}
  bad: {source: bad.onnx}
precision: {fp32: {}}
targets:
  x64: {use: x86_64-avx2}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "cuvil.yaml").write_text(CONFIG)
    shutil.copyfile(FIXTURES / "mlp.onnx", tmp_path / "good.onnx")
    nodes = [
        helper.make_node("ImageDecoder", ["x"], ["a"], name="decode"),
        helper.make_node("Reloo", ["a"], ["y"], name="typo"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13)
    (tmp_path / "bad.onnx").write_bytes(model.SerializeToString())
    return tmp_path


def test_all_problems_of_a_model_are_listed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-C", str(project)]) == 1
    said = capsys.readouterr()
    assert "good: ok for x64" in said.out and "bad: 2 problems for x64" in said.out
    assert "bad.onnx: node 'decode' (ImageDecoder, opset 26): error[unsupported-operator]" in said.err
    assert "did you mean 'Relu'?" in said.err


def test_a_good_model_exits_with_0(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "good", "-C", str(project)]) == 0
    assert "in   x: float32[batch" in capsys.readouterr().out


def test_json_has_a_row_for_each_problem(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "bad", "--format", "json", "-C", str(project)]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert [p["error"] for p in row["problems"]] == ["unsupported-operator"] * 2 and row["ok"] is False


def test_checking_leaves_nothing_behind(project: Path) -> None:
    before = sorted(p.name for p in project.iterdir())
    main(["check", "-C", str(project)])
    assert sorted(p.name for p in project.iterdir()) == before


def test_inspect_shows_a_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(project / "good.onnx"), "--format", "json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["graph"]["opset"] == 26 and summary["operators"]


def test_export_writes_a_plain_onnx_file(project: Path) -> None:
    assert main(["export", "good", str(project / "out.onnx"), "-C", str(project)]) == 0
    model = onnx.load(project / "out.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert not any(t.external_data for t in model.graph.initializer)


def test_a_step_that_is_not_there_gets_the_nearest(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "import_model:goof", str(project / "out.onnx"), "-C", str(project)]) == 2
    assert "did you mean 'import_model:good'?" in capsys.readouterr().err
