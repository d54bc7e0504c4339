"""Step `verify`: the module's numbers against the model as imported, and each kernel by itself."""

from __future__ import annotations

from pathlib import Path

from cuvil_build.steps.step import From, StepContext, StepKind


def label_file(context: StepContext) -> dict[str, Path]:
    labels = context.project.models[context.variant.model].labels
    return {} if labels is None else {"labels": context.root / labels.file}


def _params(context: StepContext) -> dict[str, object]:
    model = context.project.models[context.variant.model]
    return {
        "labelled_output": model.labels.output if model.labels is not None else "",
        "target": context.target.model_dump(mode="json"),
    }


STEP = StepKind(
    name="verify",
    worker="cuvil_build.steps.workers.verify:run",
    scope="variant",
    phase=2,
    inputs={
        "cases": From(("quantized_reference", "reference"), "cases"),
        "reference": From(("quantized_reference", "reference"), "report"),
        "loss": From("quantize", "loss", optional=True),
        "graph": From(("fuse", "quantize", "import_model"), "graph"),
        "sources": From("codegen", "sources"),
        "weights": From("codegen", "weights"),
        "module": From("link", "module"),
        "checks": From("link", "checks"),
    },
    outputs={"report": "report.json", "golden": "golden.safetensors"},
    params=_params,
    files=label_file,
    packages=("numpy", "onnx", "onnxruntime"),
    sealed=True,
    preload=("cuvil_build.steps.workers.verify",),
)
