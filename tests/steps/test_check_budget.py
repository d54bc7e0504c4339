"""Step `check_budget`: it is there where a target has a budget, and nothing is delivered that breaks it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cuvil_build.api import Project
from cuvil_build.memory.budget import OverBudget
from cuvil_build.plan.dag import Dag
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.check_budget import run
from cuvil_build.store.local import LocalStore
from tests.memory.plans import small_plan
from tests.steps.built import FIXTURES

CONFIG = """\
version: 1
project: steps
models: {net: {source: net.onnx, dims: {batch: {max: 8}}}}
targets:
  x64: {use: x86_64}
  tight: {use: x86_64, memory: {arena: ARENA, stack: 1MiB}}
"""
FACTS = {"arena_bytes": 3584, "heaps": 0, "stack_bytes": 1000, "weights_bytes": 10}


def job(folder: Path, limits: dict[str, int]) -> Job:
    (folder / "plan.json").write_text(json.dumps(small_plan()))
    (folder / "facts.json").write_text(json.dumps(FACTS))
    return Job(
        "check_budget:net/fp32/tight",
        {"limits": limits, "target": "tight"},
        {"plan": folder / "plan.json", "facts": folder / "facts.json"},
        {"plan": folder / "memory.json"},
        LocalStore(folder / "store"),
        lambda text: None,
    )


def test_a_plan_within_its_budget_passes_through(tmp_path: Path) -> None:
    run(job(tmp_path, {"arena": 3584, "weights": 10}))
    assert (tmp_path / "memory.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


def test_a_plan_beyond_its_budget_stops_there(tmp_path: Path) -> None:
    with pytest.raises(OverBudget, match=r"'targets\.tight\.memory'"):
        run(job(tmp_path, {"arena": 3583}))
    assert not (tmp_path / "memory.json").exists()


def plan(folder: Path, arena: str) -> Dag:
    folder.mkdir(exist_ok=True)
    (folder / "net.onnx").write_bytes((FIXTURES / "mlp.onnx").read_bytes())
    (folder / "cuvil.yaml").write_text(CONFIG.replace("ARENA", arena))
    return Project.load(folder, environ=dict(os.environ)).plan().plan.dag


def test_only_targets_with_a_budget_have_the_step_and_their_modules_wait_for_it(tmp_path: Path) -> None:
    dag = plan(tmp_path / "p", "4KiB")
    assert [node.id for node in dag if node.kind == "check_budget"] == ["check_budget:net/fp32/tight"]
    assert dag["bundle:net/fp32/tight"].inputs["memory"].node == "check_budget:net/fp32/tight"
    assert dag["bundle:net/fp32/x64"].inputs["memory"].node == "plan_memory:net/fp32"


def test_another_budget_asks_for_no_other_step(tmp_path: Path) -> None:
    before, after = plan(tmp_path / "p", "4KiB"), plan(tmp_path / "p", "8KiB")
    changed = [node.id for node in after if node.static != before[node.id].static]
    assert changed == ["check_budget:net/fp32/tight"]
