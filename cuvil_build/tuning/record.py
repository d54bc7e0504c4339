"""A tuning record: schedules that were faster on one model of CPU, as YAML that is kept with the project.

    version: 1
    cpu: AMD EPYC 7763
    kernels:
    - kernel: 51a06a1f7a4f2bbd
      part: 0
      about: contraction over (128, 768): ...
      gain: 1.12
      instead_of: {kind: tiles, row_tile: 6, ...}
      schedule: {kind: tiles, row_tile: 4, ...}

It comes from outside: a schedule is used only where `pick` finds that the kernel can have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuvil_build import yaml_source
from cuvil_build.errors import InvalidValue, Loc, MissingKey, UnknownKey, WrongType
from cuvil_build.yaml_source import KeyPath, YamlSource

VERSION = 1
_KEYS = frozenset("version cpu kernels".split())
_ENTRY_KEYS = frozenset("kernel part about gain instead_of schedule".split())
_KEY = re.compile(r"[0-9a-f]{16}\Z")
_MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """What one part of one kernel runs by."""

    kernel: str
    """The key of the kernel."""
    part: int
    about: str
    gain: float
    """How many times as fast as measured; told to people."""
    instead_of: Mapping[str, Any]
    """What was chosen without the entry when it was measured."""
    schedule: Mapping[str, Any]
    loc: Loc = field(default_factory=Loc)

    @property
    def place(self) -> tuple[str, int]:
        return self.kernel, self.part


@dataclass(frozen=True, slots=True)
class Record:
    """All entries of one model of CPU."""

    cpu: str
    entries: tuple[Entry, ...]


def read_record(path: Path, display: str = "") -> Record:
    """Raises where the file is no record; whether its schedules are right is another question."""
    source = yaml_source.load(path, display)
    data = _mapping(source, (), source.data, _KEYS)
    if data["version"] != VERSION:
        raise InvalidValue(
            f"version {data['version']!r} of a tuning record, where {VERSION} is known",
            loc=source.loc(("version",)),
        )
    if not isinstance(data["cpu"], str) or not data["cpu"]:
        raise WrongType("'cpu' is the name of a model of CPU", loc=source.loc(("cpu",)))
    rows = data["kernels"] or []
    if not isinstance(rows, list):
        raise WrongType("'kernels' is a list", loc=source.loc(("kernels",)))
    entries = tuple(_entry(source, ("kernels", n), row) for n, row in enumerate(rows))
    seen: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        if entry.place in seen:
            raise InvalidValue(
                f"part {entry.part} of kernel '{entry.kernel}' stands here a second time", loc=entry.loc
            )
        seen[entry.place] = entry
    return Record(data["cpu"], entries)


def _entry(source: YamlSource, path: KeyPath, row: Any) -> Entry:
    data = _mapping(source, path, row, _ENTRY_KEYS)
    kernel, part, about, gain = (data[key] for key in ("kernel", "part", "about", "gain"))
    if not isinstance(kernel, str) or not _KEY.match(kernel):
        raise InvalidValue("'kernel' is 16 hex digits", loc=source.loc((*path, "kernel")))
    if type(part) is not int or not 0 <= part < _MOST_PARTS:
        raise InvalidValue("'part' is a small number", loc=source.loc((*path, "part")))
    if not isinstance(about, str):
        raise WrongType("'about' is text", loc=source.loc((*path, "about")))
    if type(gain) not in (int, float) or not 0 < gain < 1e6:
        raise InvalidValue("'gain' is a number above 0", loc=source.loc((*path, "gain")))
    for key in ("instead_of", "schedule"):
        if not isinstance(data[key], dict):
            raise WrongType(f"'{key}' is a mapping", loc=source.loc((*path, key)))
    loc = source.loc(path)
    return Entry(kernel, part, about, float(gain), data["instead_of"], data["schedule"], loc)


def _mapping(source: YamlSource, path: KeyPath, value: Any, keys: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongType("a mapping is expected here", loc=source.loc(path))
    for key in value:
        if key not in keys:
            raise UnknownKey(f"unknown key '{key}'", loc=source.loc((*path, key), key=True))
    for key in sorted(keys - value.keys()):
        raise MissingKey(f"'{key}' is missing", loc=source.loc(path))
    return value
