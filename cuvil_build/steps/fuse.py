"""Step `fuse`: regions that become kernels, the decision log, and the order of dims in memory."""

from __future__ import annotations

from pathlib import Path

from cuvil_build.errors import MissingFile
from cuvil_build.paths import shipped
from cuvil_build.steps.step import From, StepContext, StepKind
from cuvil_build.target.load import load_target, target_names

DEFAULT = "default"


def rule_files(context: StepContext) -> dict[str, Path]:
    """By the rule's name; of two files of one name, what is listed later wins."""
    found: dict[str, Path] = {}
    for entry in context.project.fusion.rules:
        root, pattern = (shipped("rules"), "*.yaml") if entry == DEFAULT else (context.root, entry)
        files = sorted(root.glob(pattern))
        if not files and not set("*?[") & set(entry) and entry != DEFAULT:
            raise MissingFile(f"fusion.rules names '{entry}', and there is no such file")
        found |= {f"rules/{file.stem}": file for file in files if not file.name.startswith("_")}
    return dict(sorted(found.items()))


def worst_calibration() -> dict[str, float]:
    """Of the shipped targets, whatever is built: the decision log is the same for all of them."""
    worst: dict[str, float] = {}
    folders = (shipped("targets"),)
    for name in target_names(folders):
        for kind, error in load_target(name, folders).calibration.items():
            worst[kind] = max(error, worst.get(kind, 0.0))
    return dict(sorted(worst.items()))


def _params(context: StepContext) -> dict[str, object]:
    return {
        "calibration": worst_calibration(),
        "every_pass": context.project.verify.every_pass,
        "strict": context.project.fusion.strict,
    }


STEP = StepKind(
    name="fuse",
    worker="cuvil_build.steps.workers.fuse:run",
    scope="precision",
    phase=1,
    inputs={
        "graph": From(("quantize", "import_model"), "graph"),
        "cases": From(("quantized_reference", "reference"), "cases"),
        "reference": From(("quantized_reference", "reference"), "report"),
        "overrides": From("pick_overrides", "overrides", optional=True),
    },
    outputs={"graph": "graph.onnx", "decisions": "decisions.jsonl"},
    params=_params,
    files=rule_files,
    packages=("numpy", "onnx", "onnx-ir", "onnxruntime"),
    preload=("cuvil_build.steps.workers.fuse",),
)
