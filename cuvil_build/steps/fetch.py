"""Step `fetch`: the source model and the weights beside it, pinned by digest."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from cuvil_build.config.project import PathSource, PypiSource
from cuvil_build.errors import NotYet
from cuvil_build.frontends.onnx_external import external_files
from cuvil_build.steps.step import StepContext, StepKind

MODEL_FILE = "model.onnx"


def source_label(context: StepContext) -> str:
    """What errors and locations call the model's file."""
    source = context.project.models[context.variant.model].source
    if isinstance(source, PathSource):
        return PurePosixPath(source.path).as_posix()
    return source.member if isinstance(source, PypiSource) else context.variant.model


def _params(context: StepContext) -> dict[str, object]:
    source = context.project.models[context.variant.model].source
    if isinstance(source, PathSource):
        return {"kind": "path", "label": source_label(context), "sha256": source.sha256 or ""}
    if isinstance(source, PypiSource):
        pinned = {"package": source.pypi, "version": source.version, "member": source.member}
        return {"kind": "pypi", **pinned, "sha256": source.sha256 or ""}
    raise NotYet(f"model '{context.variant.model}': a source that is no path and no package")


def _files(context: StepContext) -> dict[str, Path]:
    """The model, and files beside it that hold its weights; others than those below its folder are refused
    by import, and are not read here."""
    source = context.project.models[context.variant.model].source
    if not isinstance(source, PathSource):
        return {}
    model = context.root / source.path
    files = {MODEL_FILE: model}
    for location in external_files(model):
        path = model.parent / location
        inside = not PurePosixPath(location).is_absolute() and ".." not in PurePosixPath(location).parts
        if inside and path.is_file() and path.resolve().is_relative_to(model.parent.resolve()):
            files[f"beside/{location}"] = path
    return files


STEP = StepKind(
    name="fetch",
    worker="cuvil_build.steps.workers.fetch:run",
    scope="model",
    phase=1,
    inputs={},
    outputs={"model": "model/"},
    params=_params,
    files=_files,
    code=("frontends/pypi.py", "steps/fetch.py", "steps/workers/fetch.py"),
    sealed=True,
)
