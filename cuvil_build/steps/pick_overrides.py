"""Step `pick_overrides`: what the override file says of one model, and of no others."""

from __future__ import annotations

from pathlib import Path

from cuvil_build.steps.fuse import rule_files
from cuvil_build.steps.step import From, StepContext, StepKind


def _files(context: StepContext) -> dict[str, Path]:
    return {"overrides": context.root / str(context.project.fusion.overrides)}


def _params(context: StepContext) -> dict[str, object]:
    return {
        "file": Path(context.project.fusion.overrides or "").name,
        "rules": sorted(path.stem for path in rule_files(context).values()),
    }


STEP = StepKind(
    name="pick_overrides",
    worker="cuvil_build.steps.workers.pick_overrides:run",
    scope="model",
    phase=1,
    inputs={"graph": From("import_model", "graph")},
    outputs={"overrides": "overrides.json"},
    params=_params,
    files=_files,
    when=lambda context: context.project.fusion.overrides is not None,
    sealed=True,
    packages=("onnx", "onnx-ir"),
    preload=("cuvil_build.steps.workers.pick_overrides",),
)
