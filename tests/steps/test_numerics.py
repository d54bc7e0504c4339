"""The precision policy's `numerics` are an ingredient of the steps that lower a graph, and of no others."""

from __future__ import annotations

from pathlib import Path

from cuvil_build import catalog, paths
from cuvil_build.api import Project
from cuvil_build.steps.step import StepContext

CONFIG = """\
version: 1
project: policies
models:
  net: {source: net.onnx}
precision:
  usual: {}
  exact: {numerics: strict}
targets:
  x64: {use: x86_64-avx2, tuned_for: Some CPU}
tuning: ["*.tuning.yaml"]
"""


def test_numerics_change_the_steps_that_lower(tmp_path: Path) -> None:
    (tmp_path / "cuvil.yaml").write_text(CONFIG)
    (tmp_path / "net.onnx").write_bytes(b"")
    project = Project.load(tmp_path)
    contexts: dict[str, StepContext] = {
        c.variant.precision: c
        for c in project._contexts(project.variants, paths.search_path("targets", tmp_path))
    }
    kinds = catalog.discover("cuvil_build.steps", "STEP")
    changed = {}
    for name, kind in kinds.items():
        if kind.scope == "unit":
            continue
        usual, exact = (kind.params(contexts[policy]) for policy in ("usual", "exact"))
        named = {**usual, "precision": "exact"} if "precision" in usual else usual
        if named != exact:
            changed[name] = (usual, exact)
    assert sorted(changed) == ["codegen", "pick_schedules", "plan_memory"]
    for usual, exact in changed.values():
        assert {**usual, "numerics": "strict"} == exact and usual["numerics"] == "fast"
