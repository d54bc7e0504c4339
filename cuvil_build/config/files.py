"""Whether the files that cuvil.yaml names are there: said with their place before a plan is made."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from cuvil_build.config.load import LoadedProject
from cuvil_build.config.precision import calibration_path, function_path, is_function
from cuvil_build.config.project import Model, PathSource
from cuvil_build.errors import CuvilError, ManyErrors, MissingFile

Named = tuple[str, str]
"""The dotted key of a value, and the path or pattern that it is."""

WILDCARDS = frozenset("*?[")
NO_FILES = ("default",)
"""Entries of `fusion.rules` that are no path."""


def check_files(loaded: LoadedProject, root: Path, models: Iterable[str]) -> None:
    """Of these models, and of what all models share; raises all mistakes at once."""
    project = loaded.project
    named = [row for name in sorted(set(models)) for row in _of_model(name, project.models[name])]
    if project.fusion.overrides is not None:
        named.append(("fusion.overrides", project.fusion.overrides))
    for name, policy in sorted(project.precision.items()):
        data = policy.activations.calibrate.data if policy.activations.calibrate is not None else ()
        key = f"precision.{name}.activations.calibrate.data"
        named += [(f"{key}.{i}", calibration_path(entry)) for i, entry in enumerate(data)]
        if policy.accept is not None and is_function(policy.accept.metric):
            named.append((f"precision.{name}.accept.metric", function_path(policy.accept.metric)))
    rules = enumerate(project.fusion.rules)
    # a folder for rules may be there before the first rule is
    named += [(f"fusion.rules.{i}", rule) for i, rule in rules if not WILDCARDS & set(rule)]
    # likewise for records, which are written by the first run of 'cuvil tune'
    named += [(f"tuning.{i}", name) for i, name in enumerate(project.tuning) if not WILDCARDS & set(name)]
    errors: list[CuvilError] = []
    for key, path in named:
        message = "" if path in NO_FILES else _wrong(root, path)
        if message:
            hint = "" if WILDCARDS & set(path) else _alike(root, path)
            errors.append(MissingFile(message, loc=loaded.loc(key), hint=hint))
    if errors:
        errors.sort(key=lambda error: (error.loc.file, error.loc.line, error.loc.column))
        raise errors[0] if len(errors) == 1 else ManyErrors(errors)


def _of_model(name: str, model: Model) -> Iterator[Named]:
    key = f"models.{name}"
    if isinstance(model.source, PathSource):
        yield f"{key}.source.path", model.source.path
    for index, pattern in enumerate(model.samples):
        yield f"{key}.samples.{index}", pattern
    if model.labels is not None:
        yield f"{key}.labels.file", model.labels.file


def _wrong(root: Path, path: str) -> str:
    """What keeps us from reading it, or nothing."""
    if WILDCARDS & set(path):
        return "" if any(root.glob(path)) else f"no file matches '{path}'"
    full = root / path
    if not full.exists():
        return f"there is no file '{path}'"
    if not full.is_file():
        return f"'{path}' is no file"
    return "" if os.access(full, os.R_OK) else f"'{path}' may not be read"


def _alike(root: Path, path: str) -> str:
    """A hint where a name is nearly that of a file in the same folder."""
    folder = (root / path).parent
    if (root / path).exists() or not folder.is_dir():
        return ""
    names = [str(Path(path).parent / file.name) for file in sorted(folder.iterdir()) if file.is_file()]
    close = difflib.get_close_matches(path, names, n=1, cutoff=0.8)
    return f"did you mean '{close[0]}'?" if close else ""
