"""What an override file says of one model, as data: entries about other models change nothing there."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from cuvil_build.errors import Loc
from cuvil_build.fusion.overrides import Override, Overrides, Pin


def picked(overrides: Overrides, names: Collection[str]) -> Overrides:
    """The entries about nodes of these names; `overrides` know the lines that nodes come from."""
    known = sorted(names)
    denials = tuple(e for e in overrides.denials if e.touches(known, overrides.lines))
    forces = tuple(e for e in overrides.forces if e.touches(known, overrides.lines))
    pins = tuple(pin for pin in overrides.pins if set(pin.nodes) & set(known))
    return Overrides(denials, forces, pins, overrides.lines)


def picked_text(overrides: Overrides) -> str:
    rows = [_row(entry) for entry in overrides.entries]
    return json.dumps(rows, indent=1, sort_keys=True) + "\n"


def read_picked(text: str) -> Overrides:
    """Without the source lines of nodes."""
    rows = json.loads(text)
    overrides = [_override(row) for row in rows if row["action"] != "pin"]
    return Overrides(
        tuple(o for o in overrides if o.action == "deny"),
        tuple(o for o in overrides if o.action == "force"),
        tuple(Pin(r["rule"], tuple(r["nodes"]), _loc(r)) for r in rows if r["action"] == "pin"),
    )


def _row(entry: Override | Pin) -> dict[str, Any]:
    loc = entry.loc
    place = {"rule": entry.rule, "file": loc.file, "line": loc.line, "column": loc.column}
    if isinstance(entry, Pin):
        return {"action": "pin", "nodes": list(entry.nodes), **place}
    return {"action": entry.action, "nodes": entry.nodes, "source": entry.source, **place}


def _override(row: Mapping[str, Any]) -> Override:
    return Override(row["rule"], row["nodes"], _loc(row), row["source"], row["action"])


def _loc(row: Mapping[str, Any]) -> Loc:
    return Loc(file=row["file"], line=row["line"], column=row["column"])
