"""A precision policy as the parameters of steps have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cuvil_build.config.precision import (
    Calibration,
    Precision,
    WeightType,
    calibration_path,
    function_path,
    is_function,
)
from cuvil_build.errors import MissingFile
from cuvil_build.steps.sample_files import sample_files
from cuvil_build.steps.step import StepContext


def precision_of(context: StepContext) -> Precision:
    return context.project.precision[context.variant.precision]


def is_quantised(context: StepContext) -> bool:
    return not precision_of(context).is_plain


def policy_params(context: StepContext) -> dict[str, Any]:
    policy = precision_of(context)
    kept = [
        {"nodes": list(patterns), "weights": _weights(WeightType(type=dtype)), "activations": dtype}
        for dtype, patterns in sorted(policy.keep.items())
    ]
    assigned = [
        {
            "nodes": list(entry.nodes),
            "weights": None if entry.weights is None else _weights(entry.weights),
            "activations": entry.activations,
        }
        for entry in policy.assign
    ]
    return {
        "weights": _weights(policy.weights),
        "activations": policy.activations.type,
        "dynamic": policy.activations.dynamic,
        "smooth": policy.smooth or 0.0,
        "deviations": [*kept, *assigned],
    }


def calibration_params(policy: Precision) -> dict[str, Any] | None:
    """None where nothing is calibrated."""
    if not policy.needs_samples:
        return None
    found = policy.activations.calibrate or Calibration()
    return {
        "method": found.method,
        "percentile": found.percentile,
        "samples": found.samples,
        "function": next((entry.partition(":")[2] for entry in found.data if is_function(entry)), ""),
    }


def accept_params(policy: Precision) -> dict[str, Any] | None:
    if policy.accept is None:
        return None
    found = policy.accept
    names = {"file": "", "function": ""}
    if is_function(found.metric):
        names = {"file": function_path(found.metric), "function": found.metric.partition(":")[2]}
    return {"metric": found.metric, "at_least": found.at_least, "at_most": found.at_most, **names}


def search_params(policy: Precision) -> dict[str, Any] | None:
    """None where layers are not restored."""
    if policy.accept is None or policy.accept.search is None:
        return None
    return {"budget": policy.accept.search.budget, "accept": accept_params(policy)}


def metric_files(context: StepContext) -> dict[str, Path]:
    """What a metric of the project reads: its own file, and labels."""
    accept = accept_params(precision_of(context))
    if accept is None or not accept["file"]:
        return {}
    labels = context.project.models[context.variant.model].labels
    given = {} if labels is None else {"labels": context.root / labels.file}
    return {"metric": context.root / accept["file"], **given, **sample_files(context)}


def calibration_files(context: StepContext) -> dict[str, Path]:
    """In sorted order, by names that have no path of this machine; of several functions, the first."""
    policy = precision_of(context)
    if calibration_params(policy) is None:
        return {}
    found: set[Path] = set()
    for entry in (policy.activations.calibrate or Calibration()).data:
        pattern = calibration_path(entry)
        files = set(context.root.glob(pattern))
        if not files:
            raise MissingFile(f"calibration data name '{pattern}', and there is no such file")
        if is_function(entry):
            return {"function": context.root / pattern}
        found |= files
    return {f"calibration/{i:04d}{path.suffix}": path for i, path in enumerate(sorted(found))}


def _weights(weights: WeightType) -> dict[str, Any]:
    return {
        "type": weights.type,
        "per": weights.per or "channel",
        "block": weights.block or 0,
        "scale": weights.scale or "float32",
        "zero_points": weights.type == "uint4" or bool(weights.zero_points),
        "method": weights.method,
    }
