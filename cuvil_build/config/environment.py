"""`${env:NAME}` in values: replaced, and every name that was read is recorded with the keys that used it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cuvil_build import yaml_source
from cuvil_build.config.layers import Layers
from cuvil_build.errors import CuvilError, InvalidValue, MissingEnvironment
from cuvil_build.yaml_source import KeyPath

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)\}?")
_BODY = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?\Z")


@dataclass(slots=True)
class Expansion:
    """Replaces references in all values of the layers, in place."""

    layers: Layers
    environ: Mapping[str, str]
    errors: list[CuvilError] = field(default_factory=list)
    read: dict[str, str | None] = field(default_factory=dict)
    used_by: dict[str, list[KeyPath]] = field(default_factory=dict)

    def expand(self) -> None:
        for key in self.layers.data:
            if key != "profiles":  # what a profile refers to counts only once it is merged
                self.layers.data[key] = self._value(self.layers.data[key], (key,))

    def _value(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: self._value(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item, (*path, index)) for index, item in enumerate(value)]
        return self._text(value, path) if isinstance(value, str) else value

    def _text(self, text: str, path: KeyPath) -> Any:
        if "${" not in text:
            return text
        whole = _REFERENCE.fullmatch(text)
        result = _REFERENCE.sub(lambda match: self._replace(match, path), text)
        if whole and whole["body"] is not None and path in self.layers.plain:
            return yaml_source.plain_scalar(result)  # unquoted, so the value may be a number, too
        return result

    def _replace(self, match: re.Match[str], path: KeyPath) -> str:
        if match["body"] is None:
            return "${"
        loc = self.layers.origin(path).loc
        body = _BODY.match(match["body"])
        if body is None or not match[0].endswith("}"):
            hint = "write ${env:NAME} or ${env:NAME:-default}; $${ stands for the characters ${"
            self.errors.append(InvalidValue(f"'{match[0]}' is not a reference", loc=loc, hint=hint))
            return match[0]
        name, default = body["name"], body["default"]
        value = self.environ.get(name)
        self.read[name] = value
        self.used_by.setdefault(name, []).append(path)
        if value is None and default is None:
            hint = f"set it, or write ${{env:{name}:-default}}"
            message = f"environment variable '{name}' is not set"
            self.errors.append(MissingEnvironment(message, loc=loc, hint=hint))
        return value if value is not None else default or ""
