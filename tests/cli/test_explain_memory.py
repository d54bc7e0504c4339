"""`cuvil explain memory` on a small project: the figures of the plan and of the module, in every format."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuvil_build.cli.main import main
from tests.steps.built import FIXTURES

CONFIG = """\
version: 1
project: explained
models:
  net: {source: net.onnx, dims: {batch: {min: 1, max: 8, typical: [3]}}}
targets:
  x64: {use: x86_64, memory: {arena: 1KiB, weights: 1MiB}}
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
        assert main(["explain", "memory", "-C", str(project), *words]) == 0
        return capsys.readouterr().out

    return run


def plan(project: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((project / ".cuvil/work/plan_memory/net/fp32/memory.json").read_text())
    return data


def test_text_has_the_figures_the_peak_and_other_sizes(ask: Ask, project: Path) -> None:
    text = ask("net")
    arena = plan(project)["reference_arena"]
    assert f"({arena:,} bytes) at batch = 8" in text
    over = int(str(arena)) - 1024
    assert f"1.0 KiB are allowed: {over:,} bytes too many" in text  # and it is explained all the same
    assert "1.0 MiB are allowed\n" in text
    assert "fullest at /matmul_2" in text and "made by /gemm_0" in text
    assert "typical  batch = 3" in text and "minimum  batch = 1" in text
    for words in plan(project)["compared"]:
        assert words in text


def test_json_is_what_the_plan_and_the_module_say(ask: Ask, project: Path) -> None:
    (found,) = json.loads(ask("--format", "json"))
    facts = json.loads((project / ".cuvil/work/codegen/net/fp32/x64/src/module.json").read_text())
    assert found["variant"] == "net/fp32/x64"
    assert found["budget"] == {"arena": 1024, "weights": 1 << 20}
    assert [found[name] for name in ("weights_bytes", "stack_bytes", "scratch_bytes")] == [
        facts[name] for name in ("weights_bytes", "stack_bytes", "scratch_bytes")
    ]
    largest, typical, smallest = found["sizes"]
    assert largest["arena"] == facts["arena_bytes"]
    assert [s["dims"]["batch"] for s in (largest, typical, smallest)] == [8, 3, 1]
    assert largest["arena"] > typical["arena"] > smallest["arena"] > 0
    live = {b["name"]: b["bytes"] for b in largest["blocks"] if b["name"] in largest["peak"]["live"]}
    assert sum(live.values()) == largest["lower_bound"] <= largest["arena"]
    assert all(block["producer"] for block in largest["blocks"])


def test_pictures_are_written_to_files(ask: Ask, project: Path) -> None:
    assert ask("--format", "svg", "-o", str(project / "memory.svg")) == ""
    picture = ET.fromstring((project / "memory.svg").read_text())
    assert picture.tag.endswith("svg") and len(list(picture.iter("{http://www.w3.org/2000/svg}g"))) >= 2
    page = ask("--format", "html")
    assert page.count("<svg") == 3 and "at batch = 3" in page


def test_a_model_that_cannot_be_built_says_why(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "bad.yaml").write_text(CONFIG.replace("net.onnx", "bad.onnx"))
    (project / "bad.onnx").write_bytes(b"no model")
    assert main(["explain", "memory", "-C", str(project), "-f", "bad.yaml"]) == 1
    assert "error[invalid-model]" in capsys.readouterr().err
