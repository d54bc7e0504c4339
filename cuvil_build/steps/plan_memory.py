"""Step `plan_memory`: in which order the graph runs, and where every value lives in the arena."""

from __future__ import annotations

from cuvil_build.steps.step import From, StepContext, StepKind


def _params(context: StepContext) -> dict[str, object]:
    return {"numerics": context.project.precision[context.variant.precision].numerics}


STEP = StepKind(
    name="plan_memory",
    worker="cuvil_build.steps.workers.plan_memory:run",
    scope="precision",
    phase=1,
    inputs={
        "graph": From(("fuse", "quantize", "import_model"), "graph"),
        "imported": From("import_model", "graph"),
    },
    outputs={"plan": "memory.json"},
    params=_params,
    sealed=True,
    packages=("islpy", "onnx", "onnx-ir"),
    preload=("cuvil_build.steps.workers.plan_memory",),
)
