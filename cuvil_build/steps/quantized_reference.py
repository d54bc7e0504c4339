"""Step `quantized_reference`: what the quantised graph gives on the samples; its module is held to that."""

from __future__ import annotations

from cuvil_build.steps.precision_params import accept_params, is_quantised, metric_files, precision_of
from cuvil_build.steps.step import From, StepContext, StepKind


def _params(context: StepContext) -> dict[str, object]:
    return {
        "accept": accept_params(precision_of(context)),
        "engine": context.project.verify.reference,
        "precision": context.variant.precision,
    }


STEP = StepKind(
    name="quantized_reference",
    worker="cuvil_build.steps.workers.quantized_reference:run",
    scope="precision",
    phase=1,
    inputs={
        "graph": From("quantize", "graph"),
        "cases": From("reference", "cases"),
        "search": From("quantize", "search"),
    },
    outputs={"cases": "cases.safetensors", "report": "reference.json"},
    params=_params,
    files=metric_files,
    when=is_quantised,
    packages=("numpy", "onnx", "onnxruntime"),
    sealed=True,
    preload=("cuvil_build.steps.workers.quantized_reference",),
)
