"""What pydantic found, in our words: place, name, nearest valid spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cuvil_build.config.layers import Layers
from cuvil_build.config.precision import METRIC, NODE_PATTERN
from cuvil_build.config.project import json_schema
from cuvil_build.config.section import BYTE_COUNT, DIM_NAME, EXPECTED, MODEL_NAME, NAME
from cuvil_build.errors import CuvilError, InvalidValue, MissingKey, UnknownKey, WrongType, nearest
from cuvil_build.yaml_source import KeyPath

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_PATTERNS = {
    NAME: "a name is letters, digits, '_', '-' and '.', and starts with a letter or digit",
    MODEL_NAME: "a model's name is letters, digits, '_' and '-', and starts with a letter",
    BYTE_COUNT: "a size is a whole number with a unit: B, KiB, MiB, GiB, kB, MB or GB",
    DIM_NAME: "a dim is its name, or input[axis]",
    METRIC: "a metric is cosine, sqnr, max_error or top1, or module:function of the project",
    NODE_PATTERN: "nodes are named as name:GLOB, op:NAME or path:GLOB",
}


def translate(found: Mapping[str, Any], layers: Layers) -> CuvilError:
    """One of pydantic's errors as one of ours."""
    kind = found["type"]
    path, missing, in_key = _data_path(found["loc"], layers.data)
    origin = layers.origin(path)
    if kind == "extra_forbidden":
        message = f"unknown key '{path[-1]}'" + (f" in '{dotted(path[:-1])}'" if path[:-1] else "")
        return UnknownKey(message, loc=origin.key_loc, hint=nearest(str(path[-1]), known_keys(path[:-1])))
    if kind == "missing":
        message = f"key '{missing}' is missing" + (f" in '{dotted(path)}'" if path else "")
        return MissingKey(message, loc=origin.key_loc)
    loc = origin.key_loc if in_key else origin.loc
    if (kind in _EXPECTED or kind == EXPECTED) and not in_key:
        expected = found["msg"] if kind == EXPECTED else _EXPECTED[kind]
        message = f"'{dotted(path)}' must be {expected}, not {shown(found['input'])}"
        return WrongType(message, loc=loc, hint=_type_hint(kind, found["input"]))
    if kind == "literal_error":
        return _not_a_choice(found, path, in_key).at(loc)
    text = _PATTERNS.get(found.get("ctx", {}).get("pattern", "")) or found["msg"]
    text = text.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    return InvalidValue(f"'{dotted(path)}': {text[:1].lower()}{text[1:]}", loc=loc)


def dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))


def shown(value: Any) -> str:
    """A value as YAML would show it, kept short."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None:
        return "empty"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return f"the text '{text}'" if isinstance(value, str) else text


def known_keys(path: KeyPath) -> list[str]:
    """Keys that the schema has in the mapping at a path."""
    schema = json_schema()
    here = [schema]
    for key in path:
        here = [child for node in here for child in _child(node, key, schema)]
    return sorted({key for node in here for key in node.get("properties", {})})


def _child(node: Mapping[str, Any], key: str | int, root: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    options = [node.get("properties", {}).get(key), node.get("additionalProperties"), node.get("items")]
    options += node.get("patternProperties", {}).values()
    for option in options:
        if isinstance(option, dict):
            yield from _alternatives(option, root)
            break


def _alternatives(node: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in node:
        node = root["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    branches = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    if not branches:
        yield dict(node)
    for branch in branches:
        yield from _alternatives(branch, root)


def _data_path(loc: tuple[str | int, ...], data: Any) -> tuple[KeyPath, str, bool]:
    """The part of pydantic's path that exists in the data, the last part that does not, and whether the key
    itself is wrong. Names of union branches are on pydantic's path and not in the data."""
    path: list[str | int] = []
    rest = ""
    for part in loc:
        if part == "[key]":
            return tuple(path), rest, True
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
            path.append(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
            path.append(part)
        else:
            rest = str(part)
    return tuple(path), rest, False


def _type_hint(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, (int, float)):
        return "put it in quotes"
    if kind == "bool_type" and str(value).lower() in ("yes", "no", "on", "off", "y", "n"):
        return "only true and false are booleans"
    return ""


def _not_a_choice(found: Mapping[str, Any], path: KeyPath, in_key: bool) -> CuvilError:
    expected = found.get("ctx", {}).get("expected", "")
    choices = re.findall(r"'([^']*)'", expected)
    what = f"key '{path[-1]}'" if in_key else f"'{dotted(path)}'"
    if not choices:
        return InvalidValue(f"{what} must be {expected}, not {shown(found['input'])}")
    hint = nearest(str(found["input"]), choices)
    message = f"{what} must be one of {', '.join(choices)}, not {shown(found['input'])}"
    return InvalidValue(message, hint="" if hint.startswith("known") else hint)
