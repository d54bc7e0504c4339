"""Schedules as plain values, as they stand in a tuning record and in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from cuvil_build.errors import InvalidValue
from cuvil_build.kernel.schedule import GroupSchedule, Schedule
from cuvil_build.kernel.tile_schedule import TileSchedule

NestSchedule = Schedule | TileSchedule

LOOPS, TILES = "loops", "tiles"
_LARGEST = 1 << 30
_LONGEST = 64
"""Characters of a name, and entries of a list."""


def to_values(schedule: NestSchedule) -> dict[str, Any]:
    """Numbers, names and lists of them, by field."""
    if isinstance(schedule, TileSchedule):
        return {"kind": TILES, **_plain(schedule)}
    return {"kind": LOOPS, **_plain(schedule)}


def from_values(values: object) -> NestSchedule:
    """The schedule that the values say; whether a kernel can have it is another question."""
    if not isinstance(values, Mapping):
        raise InvalidValue("a schedule is a mapping")
    kind = values.get("kind")
    if kind not in (LOOPS, TILES):
        raise InvalidValue(f"the kind of a schedule is '{LOOPS}' or '{TILES}'")
    rest = {name: value for name, value in values.items() if name != "kind"}
    return TileSchedule(**_read(TileSchedule, rest)) if kind == TILES else Schedule(**_read(Schedule, rest))


def changed_fields(before: NestSchedule, after: NestSchedule) -> dict[str, tuple[Any, Any]]:
    """Fields whose values differ, with both."""
    old, new = to_values(before), to_values(after)
    names = [*old, *(name for name in new if name not in old)]
    return {n: (old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)}


def _plain(record: Any) -> dict[str, Any]:
    return {f.name: _plain_value(getattr(record, f.name)) for f in fields(record)}


def _plain_value(value: Any) -> Any:
    if isinstance(value, GroupSchedule):
        return _plain(value)
    return [_plain_value(v) for v in value] if isinstance(value, tuple) else value


def _read(record: Any, values: Mapping[object, object]) -> dict[str, Any]:
    """Every field once, each of its type; types are read from the record, so that new fields need no word
    here."""
    known = {f.name: str(f.type) for f in fields(record)}
    missing = sorted(known.keys() - values.keys())
    unknown = sorted(str(name) for name in values if name not in known)
    if missing or unknown:
        said = [
            f"{word} {', '.join(names)}" for word, names in (("lacks", missing), ("has", unknown)) if names
        ]
        raise InvalidValue(f"a schedule of another version of Cuvil: it {' and '.join(said)}")
    return {name: _field(name, values[name], kind) for name, kind in known.items()}


def _field(name: str, value: object, kind: str) -> Any:
    if value is None and kind.endswith("| None"):
        return None
    kind = kind.removesuffix("| None").strip()
    if kind == "tuple[GroupSchedule, ...]":
        return tuple(GroupSchedule(**_read(GroupSchedule, _mapping(name, v))) for v in _list(name, value))
    if kind == "tuple[str, ...]":
        return tuple(_field(name, v, "str") for v in _list(name, value))
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
        return value
    if kind == "str" and isinstance(value, str) and len(value) <= _LONGEST:
        return value
    raise InvalidValue(f"'{name}' of a schedule is not a right {kind}")


def _list(name: str, value: object) -> Sequence[object]:
    if not isinstance(value, list) or len(value) > _LONGEST:
        raise InvalidValue(f"'{name}' of a schedule is not a list")
    return value


def _mapping(name: str, value: object) -> Mapping[object, object]:
    if not isinstance(value, Mapping):
        raise InvalidValue(f"'{name}' of a schedule is not a list of mappings")
    return value
