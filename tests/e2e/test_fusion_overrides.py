"""An override changes the steps that it touches, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cuvil_build.cli.main import main
from tests.fused_project import SECOND, FusedProject

REPORTS = {"bundle", "check_budget", "codegen", "fuse", "link", "pick_overrides", "plan_memory", "verify"}
"""Kinds of steps that a changed graph runs again, of one variant."""


def kernels(project: FusedProject) -> set[str]:
    sources = project.root / ".cuvil/work/codegen/dense/fp32/x64/src/module.json"
    return set(json.loads(sources.read_text())["kernels"])


def assert_errors_are_told(project: FusedProject, capsys: pytest.CaptureFixture[str]) -> None:
    """Every region of a verified module has the error that was measured of its kernels."""
    assert main(["explain", "fusion", "-C", str(project.root), "--format", "json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    errors = [row["error"] for row in told["decisions"] if row["applied"] and row["stage"] == "fuse"]
    assert errors and all(0 <= error < 1e-4 for error in errors)


def test_only_what_a_denial_touches_is_built_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = FusedProject.make(tmp_path)
    project.build()
    before = kernels(project)
    assert_errors_are_told(project, capsys)
    project.overrides.write_text(f"deny:\n  - {{rule: '*', nodes: {SECOND[2]}}}\n")
    project.build()
    after = kernels(project)
    ran = project.ran()
    assert {step.partition(":")[0] for step in ran} - {"compile"} <= REPORTS
    assert {"fuse:dense/fp32", "plan_memory:dense/fp32", "codegen:dense/fp32/x64"} <= ran
    compiled = {re.sub(r".*\((.*)\)", r"\1", step) for step in ran if step.startswith("compile:")}
    kept, new = before & after, after - before
    assert kept and new and new <= compiled and not kept & compiled
    # What holds the calls changed with them; the runtime and the other kernels did not.
    assert {name for name in compiled - new if not name.startswith("rt_")} <= {"module", "checks_module"}
    assert not [name for name in compiled if name.startswith("rt_")]
    decisions = (project.root / ".cuvil/work/fuse/dense/fp32/decisions.jsonl").read_text()
    told = [json.loads(line) for line in decisions.splitlines()]
    denied = [row for row in told if row.get("override") == "deny fusion.overrides.yaml:2"]
    assert denied and all(not row["applied"] and SECOND[2] in row["nodes"] for row in denied)

    project.overrides.write_text("# Nothing denied any more.\n")
    project.build()
    assert kernels(project) == before
    again = {step.partition(":")[0] for step in project.ran()}
    assert again <= {"fuse", "pick_overrides"}, "all is in the store"
