"""Step `import_model`: the source model as a CU-IR graph, compared with it on sample inputs."""

from __future__ import annotations

from cuvil_build.steps.fetch import source_label
from cuvil_build.steps.sample_files import sample_files
from cuvil_build.steps.step import From, StepContext, StepKind


def _params(context: StepContext) -> dict[str, object]:
    model = context.project.models[context.variant.model]
    return {
        "model": context.variant.model,
        "label": source_label(context),
        "dims": {
            name: [d.min, d.max, list(d.typical), d.multiple_of] for name, d in sorted(model.dims.items())
        },
        "outputs": list(model.outputs) if model.outputs is not None else None,
        "every_pass": context.project.verify.every_pass,
    }


STEP = StepKind(
    name="import_model",
    worker="cuvil_build.steps.workers.import_model:run",
    scope="model",
    phase=1,
    inputs={"model": From("fetch", "model")},
    outputs={"graph": "graph.onnx", "report": "import.json"},
    params=_params,
    files=sample_files,
    packages=("numpy", "onnx", "onnx-ir", "onnxruntime"),
    preload=("cuvil_build.steps.workers.import_model",),
)
