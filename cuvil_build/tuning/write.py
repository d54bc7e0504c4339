"""Writes a tuning record; what people wrote between its entries stays where it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cuvil_build import yaml_source
from cuvil_build.errors import CuvilError, FileAccess
from cuvil_build.tuning.record import VERSION, Entry, Record, read_record

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_WORDS = frozenset("true false null yes no on off".split())
_HEAD = """# Schedules that 'cuvil tune' proved to be faster on this CPU than what is chosen without them.
# Kernels are named by what they compute. An entry may be removed by hand.
"""


def merge_entries(old: Sequence[Entry], new: Sequence[Entry]) -> tuple[Entry, ...]:
    """New entries in place of those of the same kernels: two parts of one kernel were not tried together."""
    replaced = {entry.kernel for entry in new}
    kept = [entry for entry in old if entry.kernel not in replaced]
    return tuple(sorted((*kept, *new), key=lambda entry: entry.place))


def write_record(path: Path, cpu: str, new: Sequence[Entry]) -> Record:
    """Merges with what is there, all or nothing."""
    old = read_record(path, str(path)) if path.exists() else Record(cpu, ())
    record = Record(cpu, merge_entries(old.entries, new))
    text = _edited(path, old, new) if path.exists() else ""
    if not _says(text, record):
        text = record_text(record)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise FileAccess(f"'{path}' cannot be written: {error.strerror}") from None
    return record


def record_text(record: Record) -> str:
    lines = [f"{_HEAD}version: {VERSION}", f"cpu: {json.dumps(record.cpu, ensure_ascii=False)}"]
    if not record.entries:
        return "\n".join([*lines, "kernels: []", ""])
    return "\n".join([*lines, "kernels:", *map(entry_text, record.entries), ""])


def entry_text(entry: Entry) -> str:
    return "\n".join(
        [
            f'- kernel: "{entry.kernel}"',
            f"  part: {entry.part}",
            f"  about: {json.dumps(entry.about, ensure_ascii=False)}",
            f"  gain: {entry.gain:.2f}",
            f"  instead_of: {_flow(entry.instead_of)}",
            f"  schedule: {_flow(entry.schedule)}",
        ]
    )


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_flow(v)}" for name, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _edited(path: Path, old: Record, new: Sequence[Entry]) -> str:
    """The text with entries replaced and added; whether it says what it should is for the caller to see."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    starts = [entry.loc.line - 1 for entry in old.entries]
    blocks = list(zip(starts, [*starts[1:], len(lines)]))
    fresh = {entry.kernel: entry for entry in new}
    out = lines[: starts[0]] if starts else [line for line in lines if line.strip() != "kernels: []"]
    if not starts:
        out += [] if any(line.strip() == "kernels:" for line in out) else ["kernels:"]
    for entry, (start, stop) in zip(old.entries, blocks):
        block = lines[start:stop]
        body = _length(block)
        if entry.kernel in fresh:
            replacement = fresh.pop(entry.kernel)
            out += entry_text(replacement).splitlines()
        elif all(entry.kernel != e.kernel for e in new):
            out += block[:body]
        out += block[body:]
    for entry in fresh.values():
        out += entry_text(entry).splitlines()
    return "\n".join([*out, ""])


def _length(block: Sequence[str]) -> int:
    """Lines of an entry, without the comments and empty lines after it."""
    count = len(block)
    while count > 1 and (not block[count - 1].strip() or block[count - 1].lstrip().startswith("#")):
        count -= 1
    return count


def _says(text: str, record: Record) -> bool:
    """Whether the text is a record with just these entries, in any order."""
    try:
        data = yaml_source.parse(text, "record").data
    except CuvilError:
        return False
    rows = data.get("kernels") if isinstance(data, dict) else None
    if not isinstance(rows, list) or data.get("cpu") != record.cpu:
        return False
    wanted = {entry.place: (dict(entry.schedule), dict(entry.instead_of)) for entry in record.entries}
    found = {
        (row.get("kernel"), row.get("part")): (row.get("schedule"), row.get("instead_of")) for row in rows
    }
    return found == wanted and len(rows) == len(wanted)
