"""`cuvil plan` on a toy project."""

from __future__ import annotations

import json

import pytest

from tests.toy_fixtures import Run, cuvil
from tests.toy_project import Toy


def test_plan_lists_reasons_and_loads_nothing_heavy(
    run: Run, built: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    built.wipe()
    assert run("plan") == 0
    text = capsys.readouterr().out
    assert "fetch:a" in text and "first build" in text and "2 to run" in text
    assert run("plan", "--format", "json", "model:b") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["step"] for row in rows if row["status"] == "run"} == {"fetch:b"}
    assert run("plan", "+codegen:b/fp32/x64", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["kind"] for row in rows] == ["fetch", "import_model", "fuse", "codegen"]


def test_plan_with_the_real_steps_loads_no_framework(built: Toy) -> None:
    loaded = set(cuvil(built, "plan").stderr.split())
    assert "networkx" in loaded
    assert not loaded & {"onnx", "onnx_ir", "sympy", "islpy", "onnxruntime"}
