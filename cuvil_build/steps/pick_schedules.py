"""Step `pick_schedules`: what tuning records say of the kernels of one module, and of no others."""

from __future__ import annotations

from pathlib import Path

from cuvil_build.steps.step import From, StepContext, StepKind


def tuned_for(context: StepContext) -> str:
    """The model of CPU whose record the variant is built with; empty: none."""
    use = context.project.targets.get(context.variant.target)
    return "" if use is None or use.tuned_for is None else use.tuned_for


def record_files(context: StepContext) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for pattern in context.project.tuning:
        for path in sorted(context.root.glob(pattern)):
            found[f"records/{path.relative_to(context.root).as_posix()}"] = path
    return dict(sorted(found.items()))


def _params(context: StepContext) -> dict[str, object]:
    return {
        "cpu": tuned_for(context),
        "numerics": context.project.precision[context.variant.precision].numerics,
        "target": context.target.model_dump(mode="json"),
    }


STEP = StepKind(
    name="pick_schedules",
    worker="cuvil_build.steps.workers.pick_schedules:run",
    scope="variant",
    phase=1,
    inputs={"graph": From(("fuse", "quantize", "import_model"), "graph")},
    # What is refused is told apart from what is used: only the latter makes other kernels.
    outputs={"schedules": "schedules.json", "warnings": "warnings.json"},
    params=_params,
    files=record_files,
    when=lambda context: bool(tuned_for(context)) and bool(record_files(context)),
    sealed=True,
    packages=("islpy", "onnx", "onnx-ir"),
    preload=("cuvil_build.steps.workers.pick_schedules",),
)
