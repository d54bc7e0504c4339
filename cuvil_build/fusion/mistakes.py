"""What pydantic found in a rule or override file, as our errors with their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from cuvil_build.errors import (
    CuvilError,
    InvalidValue,
    ManyErrors,
    MissingKey,
    UnknownKey,
    WrongType,
    nearest,
)
from cuvil_build.yaml_source import YamlSource


def translated(
    error: ValidationError, source: YamlSource, models: Sequence[type[BaseModel]]
) -> list[CuvilError]:
    """`models` are those that the file is made of, for hints."""
    known = sorted({key for model in models for key in model.model_fields})
    return [_translated(dict(found), source, known) for found in error.errors()]


def raise_errors(errors: Sequence[CuvilError]) -> None:
    """One as it is, several at once, none twice."""
    distinct = list({str(error): error for error in errors}.values())
    if distinct:
        raise distinct[0] if len(distinct) == 1 else ManyErrors(distinct)


def _translated(found: Mapping[str, Any], source: YamlSource, known: Sequence[str]) -> CuvilError:
    path = _data_path(found["loc"], source.data)
    loc, kind = source.loc(path), str(found["type"])
    missing = str(found["loc"][-1]) if found["loc"] else ""
    if kind == "extra_forbidden":
        name = str(path[-1])
        return UnknownKey(f"unknown key '{name}'", loc=source.loc(path, key=True), hint=nearest(name, known))
    if kind == "missing":
        return MissingKey(f"key '{missing}' is missing", loc=loc)
    message = str(found["msg"]).removeprefix("Input ").removeprefix("Value error, ")
    message = f"'{'.'.join(map(str, path))}': {message[:1].lower()}{message[1:]}"
    return (WrongType if kind.endswith("_type") else InvalidValue)(message, loc=loc)


def _data_path(loc: Sequence[str | int], data: Any) -> tuple[str | int, ...]:
    """The part of pydantic's path that is in the data: names of union branches are not."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            continue
        path.append(part)
    return tuple(path)
