"""Step `reference`: what the model gives on its samples; every later check is held to it."""

from __future__ import annotations

from cuvil_build.steps.sample_files import sample_files
from cuvil_build.steps.step import From, StepContext, StepKind


def _params(context: StepContext) -> dict[str, object]:
    return {"model": context.variant.model, "engine": context.project.verify.reference}


STEP = StepKind(
    name="reference",
    worker="cuvil_build.steps.workers.reference:run",
    scope="model",
    phase=1,
    inputs={"graph": From("import_model", "graph")},
    outputs={"cases": "cases.safetensors", "report": "reference.json"},
    params=_params,
    files=sample_files,
    packages=("numpy", "onnx", "onnxruntime"),
    sealed=True,
    preload=("cuvil_build.steps.workers.reference",),
)
