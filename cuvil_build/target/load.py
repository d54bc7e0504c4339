"""Target files: `extends`, features that add up, and messages with places."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cuvil_build import yaml_source
from cuvil_build.errors import CuvilError, InvalidTarget, ManyErrors, UnknownTarget, nearest
from cuvil_build.target.descriptor import Target


def target_names(folders: Sequence[Path]) -> list[str]:
    """Names of the targets in these folders, sorted; files that start with _ are bases."""
    return sorted({file.stem for folder in folders for file in folder.glob("[!_]*.yaml")})


def load_target(name: str, folders: Sequence[Path]) -> Target:
    """The target of this name; an earlier folder wins."""
    data = _merged(name, folders, ())
    try:
        return Target.model_validate(data)
    except ValidationError as error:
        file = _find(name, folders)
        source = yaml_source.load(file, _display(file))
        errors: list[CuvilError] = []
        for found in error.errors():
            key = ".".join(map(str, found["loc"]))
            message = f"'{key}': {found['msg']}" if key else found["msg"]
            errors.append(InvalidTarget(message, loc=source.loc(found["loc"])))
        raise errors[0] if len(errors) == 1 else ManyErrors(errors) from None


def _find(name: str, folders: Sequence[Path]) -> Path:
    for folder in folders:
        file = folder / f"{name}.yaml"
        if file.is_file() and file.parent == folder:
            return file
    hint = nearest(name, target_names(folders))
    hint = f"{hint} see 'cuvil targets'" if hint.endswith("?") else "see 'cuvil targets'"
    raise UnknownTarget(f"unknown target '{name}'", hint=hint)


def _display(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def _merged(name: str, folders: Sequence[Path], above: tuple[str, ...]) -> dict[str, Any]:
    file = _find(name, folders)
    source = yaml_source.load(file, _display(file))
    if not isinstance(source.data, dict):
        raise InvalidTarget("the file must be a mapping", loc=source.loc(()))
    data = dict(source.data)
    parent = data.pop("extends", None)
    if not name.startswith("_") and data.get("name") != name:
        raise InvalidTarget(f"'name' must be '{name}', as the file is called", loc=source.loc(("name",)))
    if parent is None:
        return data
    place = source.loc(("extends",))
    if not isinstance(parent, str):
        raise InvalidTarget("'extends' must be the name of a target", loc=place)
    if parent in (*above, name):
        raise InvalidTarget(f"'{name}' extends itself: {' -> '.join((*above, name, parent))}", loc=place)
    try:
        base = _merged(parent, folders, (*above, name))
    except UnknownTarget as error:
        raise error.at(place) from None
    return _overlay(base, data)


def _overlay(base: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Mappings merge, features add up, everything else is replaced."""
    merged = dict(base)
    for key, value in data.items():
        mine = merged.get(key)
        if isinstance(mine, dict) and isinstance(value, dict):
            merged[key] = {**mine, **value}
        elif key == "features" and isinstance(mine, list) and isinstance(value, list):
            merged[key] = sorted({*map(str, mine), *map(str, value)})
        else:
            merged[key] = value
    return merged
