"""Which files of the project are a model's samples."""

from __future__ import annotations

from pathlib import Path

from cuvil_build.errors import MissingFile
from cuvil_build.steps.step import StepContext


def sample_files(context: StepContext) -> dict[str, Path]:
    """In sorted order, by names that have no path of this machine."""
    found: set[Path] = set()
    for pattern in context.project.models[context.variant.model].samples:
        files = set(context.root.glob(pattern))
        if not files and not set("*?[") & set(pattern):
            raise MissingFile(
                f"samples of '{context.variant.model}' name '{pattern}', and there is no such file"
            )
        found |= files
    return {f"samples/{i:04d}": path for i, path in enumerate(sorted(found))}
