"""Step `quantize`: the graph in the dtypes of the policy, and what that loses."""

from __future__ import annotations

from pathlib import Path

from cuvil_build.steps.precision_params import (
    calibration_files,
    calibration_params,
    is_quantised,
    metric_files,
    policy_params,
    precision_of,
    search_params,
)
from cuvil_build.steps.step import From, StepContext, StepKind


def _params(context: StepContext) -> dict[str, object]:
    policy = precision_of(context)
    return {
        "calibration": calibration_params(policy),
        "has_samples": bool(context.project.models[context.variant.model].samples),
        "policy": policy_params(context),
        "search": search_params(policy),
    }


def _files(context: StepContext) -> dict[str, Path]:
    metric = metric_files(context) if search_params(precision_of(context)) is not None else {}
    return calibration_files(context) | metric


STEP = StepKind(
    name="quantize",
    worker="cuvil_build.steps.workers.quantize:run",
    scope="precision",
    phase=1,
    inputs={"graph": From("import_model", "graph"), "cases": From("reference", "cases")},
    # what only people read is told apart from what makes other modules
    outputs={
        "graph": "graph.onnx",
        "plain": "quantized.onnx",
        "loss": "loss.json",
        "report": "report.json",
        "search": "search.jsonl",
        "warnings": "warnings.json",
    },
    params=_params,
    files=_files,
    when=is_quantised,
    packages=("numpy", "onnx", "onnx-ir", "onnxruntime"),
    preload=("cuvil_build.steps.workers.quantize",),
)
