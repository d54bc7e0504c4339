"""Step `pick_schedules`: records of the CPU that the target names, and of no other."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from cuvil_build.config.project import Project, TargetUse
from cuvil_build.steps.pick_schedules import STEP, record_files, tuned_for
from cuvil_build.steps.step import Job, StepContext
from cuvil_build.steps.workers.pick_schedules import read_picked, run
from cuvil_build.store.local import LocalStore
from cuvil_build.tuning.write import write_record
from tests.steps.built import Built


def context(root: Path, tuning: list[str], cpu: str | None) -> StepContext:
    project = Project.model_validate(
        {
            "version": 1,
            "project": "p",
            "models": {"m": {"source": "m.onnx"}},
            "targets": {"x64": TargetUse(use=("x86_64",), tuned_for=cpu)},
            "tuning": tuning,
        }
    )
    return cast(
        StepContext, SimpleNamespace(root=root, project=project, variant=SimpleNamespace(target="x64"))
    )


def test_there_is_a_step_only_where_a_record_may_be_used(tmp_path: Path) -> None:
    write_record(tmp_path / "tuning/a.yaml", "A", [])
    write_record(tmp_path / "tuning/b.yaml", "B", [])
    assert STEP.when(context(tmp_path, ["tuning/*.yaml"], "A"))
    assert not STEP.when(context(tmp_path, ["tuning/*.yaml"], None))
    assert not STEP.when(context(tmp_path, ["other/*.yaml"], "A"))
    assert not STEP.when(context(tmp_path, [], "A"))
    found = record_files(context(tmp_path, ["tuning/*.yaml"], "A"))
    assert sorted(found) == ["records/tuning/a.yaml", "records/tuning/b.yaml"]
    assert tuned_for(context(tmp_path, [], "A")) == "A"


def test_records_of_other_cpus_are_told_where_none_is_of_this_one(net: Built, tmp_path: Path) -> None:
    write_record(tmp_path / "a.yaml", "AMD EPYC 7763", [])
    (node,) = net.nodes("codegen")
    outputs = {"schedules": tmp_path / "schedules.json", "warnings": tmp_path / "warnings.json"}
    params: dict[str, Any] = {"cpu": "AMD EPIC 7763", "target": node.params["target"], "numerics": "fast"}
    inputs = {"graph": net.inputs(node)["graph"], "records/a.yaml": tmp_path / "a.yaml"}
    told: list[str] = []
    run(Job("pick_schedules:net", params, inputs, outputs, cast(LocalStore, net.store), told.append))
    assert read_picked(outputs["schedules"]) == {}
    (warning,) = json.loads(outputs["warnings"].read_text())
    assert warning == "no tuning record is for 'AMD EPIC 7763', did you mean 'AMD EPYC 7763'?"
    assert told[-1] == "0 schedules of 0 entries"


def test_without_the_step_nothing_is_picked() -> None:
    assert read_picked(None) == {}
