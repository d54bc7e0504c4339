"""Why a step ran: the differences of two ingredient records, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs. A side that does not have it is None."""

    field: str
    before: object
    after: object
    added: bool = False
    removed: bool = False

    def __str__(self) -> str:
        if self.added:
            return f"{self.field} added: {_show(self.after)}"
        if self.removed:
            return f"{self.field} removed: {_show(self.before)}"
        return f"{self.field} changed: {_show(self.before)} -> {_show(self.after)}"

    def to_json(self) -> dict[str, object]:
        row: dict[str, object] = {"field": self.field}
        if not self.added:
            row["before"] = self.before
        if not self.removed:
            row["after"] = self.after
        return row


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[Change]:
    """By field name; code last, since a change of ours changes it everywhere and rarely explains most."""
    found = list(_walk("", before, after))
    return sorted(found, key=lambda change: (change.field == "code", change.field))


def _walk(path: str, before: object, after: object) -> Iterator[Change]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            field = f"{path}.{name}" if path else str(name)
            if name not in before:
                yield Change(field, None, after[name], added=True)
            elif name not in after:
                yield Change(field, before[name], None, removed=True)
            else:
                yield from _walk(field, before[name], after[name])
        return
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _walk(f"{path}[{index}]", old, new)
        return
    if before != after or type(before) is not type(after):  # 1 and true are equal in Python alone
        yield Change(path, before, after)


def _show(value: object) -> str:
    if isinstance(value, str) and len(value) == 64 and all(c in "0123456789abcdef" for c in value):
        return value[:12]
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
