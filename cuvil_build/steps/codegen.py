"""Step `codegen`: C sources and packed weights of one module."""

from __future__ import annotations

from cuvil_build.steps.step import From, StepContext, StepKind


def _params(context: StepContext) -> dict[str, object]:
    use = context.project.targets.get(context.variant.target)
    return {
        "embed": use is not None and use.weights == "embed",
        "members": context.members(),
        "model": context.variant.model,
        "numerics": context.project.precision[context.variant.precision].numerics,
        "target": context.target.model_dump(mode="json"),
    }


STEP = StepKind(
    name="codegen",
    worker="cuvil_build.steps.workers.codegen:run",
    scope="variant",
    phase=1,
    inputs={
        "graph": From(("fuse", "quantize", "import_model"), "graph"),
        "plan": From("plan_memory", "plan"),
        "picked": From("pick_schedules", "schedules", optional=True),
    },
    outputs={"sources": "src/", "weights": "weights.safetensors", "schedules": "schedules.json"},
    params=_params,
    sealed=True,
    packages=("islpy", "jinja2", "onnx", "onnx-ir"),
    preload=("cuvil_build.steps.workers.codegen",),
)
