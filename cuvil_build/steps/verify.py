"""Step `verify`: the module's numbers against the model as imported, and each kernel by itself."""

from __future__ import annotations

from pathlib import Path

from cuvil_build.steps.step import From, StepContext, StepKind


def sample_files(context: StepContext) -> dict[str, Path]:
    """The model's sample files, and its labels, by names that a machine's paths are not in."""
    model = context.project.models[context.variant.model]
    found = sorted({path for pattern in model.samples for path in context.root.glob(pattern)})
    files = {f"samples/{i:04d}": path for i, path in enumerate(found)}
    if model.labels is not None:
        files["labels"] = context.root / model.labels.file
    return files


def _params(context: StepContext) -> dict[str, object]:
    model = context.project.models[context.variant.model]
    return {
        "model": context.variant.model,
        "labelled_output": model.labels.output if model.labels is not None else "",
        "target": context.target.model_dump(mode="json"),
        "reference": context.project.verify.reference,
    }


STEP = StepKind(
    name="verify",
    worker="cuvil_build.steps.workers.verify:run",
    scope="variant",
    phase=2,
    inputs={
        "imported": From("import_model", "graph"),
        "graph": From(("fuse", "import_model"), "graph"),
        "sources": From("codegen", "sources"),
        "weights": From("codegen", "weights"),
        "module": From("link", "module"),
        "checks": From("link", "checks"),
    },
    outputs={"report": "report.json", "golden": "golden.safetensors"},
    params=_params,
    files=sample_files,
    packages=("numpy", "onnx", "onnxruntime"),
    sealed=True,
    preload=("cuvil_build.steps.workers.verify",),
)
