"""The same project gives the same bytes anywhere, and what did not change is not done again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.e2e.quickstart import copy_quickstart

ROOT = Path(__file__).parent.parent.parent
STEPS = {"fetch", "import_model", "fuse", "plan_memory", "codegen", "compile", "link", "verify", "bundle"}


@dataclass(frozen=True, slots=True)
class Done:
    """What one run of the command said."""

    events: list[dict[str, Any]]
    text: str

    def ended(self, status: str) -> list[str]:
        return [e["step"] for e in self.events if e.get("status") == status]


@dataclass(frozen=True, slots=True)
class Desk:
    """A folder with the quickstart and the store that it uses."""

    root: Path
    store: Path

    def build(self, *arguments: str, seed: str = "0") -> Done:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("CUVIL_")},
            "CUVIL_STORE": str(self.store),
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "cuvil_build", "build", "target:x64", "--format", "json", *arguments]
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return Done([json.loads(line) for line in lines], done.stdout)

    def artifacts(self) -> dict[str, bytes]:
        base = self.root / "build"
        return {str(p.relative_to(base)): p.read_bytes() for p in sorted(base.rglob("*")) if p.is_file()}

    def edit(self, change: Callable[[str], str]) -> None:
        path = self.root / "cuvil.yaml"
        before = path.read_text()
        after = change(before)
        assert after != before
        path.write_text(after)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    base = tmp_path_factory.mktemp("first")
    desk = Desk(copy_quickstart(base / "project"), base / "store")
    ran = desk.build("-j1", seed="1").ended("ok")
    assert {step.partition(":")[0] for step in ran} >= STEPS
    return desk


def differences(have: Mapping[str, bytes], want: Mapping[str, bytes]) -> list[str]:
    return sorted(name for name in {*have, *want} if have.get(name) != want.get(name))


def test_folder_jobs_and_hash_seed_change_no_byte(first: Desk, tmp_path: Path) -> None:
    other = Desk(copy_quickstart(tmp_path / "another place/with a space"), tmp_path / "store")
    assert not other.store.exists()
    ran = other.build("-j8", seed="4711").ended("ok")
    assert {step.partition(":")[0] for step in ran} >= STEPS
    assert len(first.artifacts()) >= 6
    assert differences(other.artifacts(), first.artifacts()) == []


def test_no_path_of_the_machine_is_in_an_artifact(first: Desk) -> None:
    for name, content in first.artifacts().items():
        for path in (str(first.root), str(first.store), str(ROOT), f"{Path.home()}/"):
            assert path.encode() not in content, f"{path} in {name}"


def nothing(done: Done) -> None:
    assert done.ended("ok") == [] and done.ended("failed") == [], done.text


def test_a_second_build_runs_nothing(first: Desk) -> None:
    before = first.artifacts()
    nothing(first.build())
    nothing(first.build("-j8", seed="3"))
    assert first.artifacts() == before


def reorder(text: str) -> str:
    """The keys of the model and the lines of targets the other way round."""
    targets = re.search(r"targets:\n((?:  .*\n)+)", text)
    assert targets is not None
    lines = targets[1].splitlines(keepends=True)
    return text.replace(targets[1], "".join(reversed(lines)))


EDITS: list[tuple[str, Callable[[str], str]]] = [
    ("comment", lambda text: f"# another comment\n{text}"),
    ("blank lines", lambda text: text.replace("\nprecision:", "\n\n\nprecision:   # plain")),
    ("key order", reorder),
    ("flow style", lambda text: text.replace("batch: {min: 1, max: 512,", "batch: {max: 512,   min: 1,")),
    ("quotes", lambda text: text.replace("source: digits.onnx", 'source: "digits.onnx"')),
    ("tags", lambda text: text.replace("tags: [demo]", "tags: [demo, other]", 1)),
]


@pytest.mark.parametrize("change", [e[1] for e in EDITS], ids=[e[0] for e in EDITS])
def test_formatting_runs_nothing(first: Desk, change: Callable[[str], str]) -> None:
    before = first.artifacts()
    first.edit(change)
    nothing(first.build())
    assert first.artifacts() == before


def test_touched_files_run_nothing(first: Desk) -> None:
    for name in ("digits.onnx", "data/heldout.npz", "cuvil.yaml"):
        (first.root / name).touch()
    nothing(first.build())


def test_a_fresh_clone_with_a_copied_store_runs_nothing(first: Desk, tmp_path: Path) -> None:
    shutil.copytree(first.store, tmp_path / "store")
    clone = Desk(copy_quickstart(tmp_path / "clone"), tmp_path / "store")
    nothing(clone.build())
    assert differences(clone.artifacts(), first.artifacts()) == []


def test_one_changed_weight_runs_what_reads_it_and_compiles_nothing(first: Desk, tmp_path: Path) -> None:
    """Weights are in their own file, so the C of all kernels stays what it was."""
    shutil.copytree(first.store, tmp_path / "store")
    desk = Desk(copy_quickstart(tmp_path / "changed"), tmp_path / "store")
    model = onnx.load(desk.root / "digits.onnx")
    tensor = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    values = onnx.numpy_helper.to_array(tensor).copy()
    values.reshape(-1)[0] += np.float32(0.01)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, desk.root / "digits.onnx")
    ran = desk.build().ended("ok")
    compiled = {step for step in ran if step.startswith("compile:")}
    assert {step.partition(":")[0] for step in ran} >= {"fetch", "import_model", "codegen", "verify"}
    # the tables of both modules name the new weights file by its id
    assert len(compiled) <= 2, compiled
    assert desk.artifacts() != first.artifacts()
