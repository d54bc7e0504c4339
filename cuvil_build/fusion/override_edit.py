"""Changes an override file as a person would: one entry's lines, and nothing else of the text."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuvil_build import yaml_source
from cuvil_build.errors import InvalidValue, Loc, WrongType
from cuvil_build.fusion.overrides import ACTIONS
from cuvil_build.yaml_source import YamlSource

Entry = Mapping[str, Any]

WIDTH = 100
"""Entries that are longer are written over several lines."""
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")
_CLOSING = {"{": "}", "[": "]"}


def deny_entry(rule: str, nodes: Sequence[str]) -> Entry:
    """No region of the rule may have the first of these nodes: then none can have all of them."""
    return {"rule": rule, "nodes": glob.escape(nodes[0])}


def pin_entry(rule: str, nodes: Sequence[str]) -> Entry:
    return {"rule": rule, "nodes": list(nodes)}


def entry_for(action: str, rule: str, nodes: Sequence[str]) -> Entry:
    return pin_entry(rule, nodes) if action == "pin" else deny_entry(rule, nodes)


def decide(text: str, file: str, action: str, rule: str, nodes: Sequence[str]) -> str:
    """The text with one decision in it: `deny`, `force` or `pin`, or none (`clear`). Entries that said
    otherwise of the same rule and nodes go; entries with wider patterns stay."""
    wanted = None if action == "clear" else (action, entry_for(action, rule, nodes))
    kept = False
    for key, number, entry in reversed(list(_entries(text, file))):
        if wanted is not None and not kept and (key, entry) == wanted:
            kept = True
        elif _is_of(entry, key, rule, nodes):
            text = remove_entry(text, file, key, number)
    return text if kept or wanted is None else add_entry(text, file, *wanted)


def _entries(text: str, file: str) -> Iterator[tuple[str, int, Entry]]:
    data = yaml_source.parse(text, file).data or {}
    if not isinstance(data, dict):
        raise WrongType("an override file must be a mapping", loc=Loc(file, 1, 1))
    for key in ACTIONS:
        for number, entry in enumerate(data.get(key) or ()):
            if isinstance(entry, dict):
                yield key, number, entry


def _is_of(entry: Entry, key: str, rule: str, nodes: Sequence[str]) -> bool:
    if entry.get("rule") != rule or entry.get("source"):
        return False
    named = entry.get("nodes")
    if key == "pin":
        return isinstance(named, list) and set(named) == set(nodes)
    return isinstance(named, str) and any(named == glob.escape(name) for name in nodes)


def matching_entries(text: str, file: str, rule: str, nodes: Sequence[str]) -> list[str]:
    """`deny, line 3` for each entry that is about a region of this rule and these nodes."""
    source = yaml_source.parse(text, file)
    found = []
    for key, number, entry in _entries(text, file):
        names, of_rule = entry.get("nodes", "*"), str(entry.get("rule", ""))
        if not (fnmatch.fnmatchcase(rule, of_rule) if key == "deny" else of_rule == rule):
            continue
        if isinstance(names, list):
            matches = set(names) == set(nodes)
        else:
            matches = not entry.get("source") and any(fnmatch.fnmatchcase(n, str(names)) for n in nodes)
        if matches:
            found.append(f"{key}, line {source.loc((key, number)).line}")
    return found


# Adding --------------------------------------------------------------------------------------------------


def add_entry(text: str, file: str, key: str, entry: Entry) -> str:
    """At the end of the key's list; a list or a file that is not there yet is begun."""
    source = yaml_source.parse(text, file)
    data = {} if source.data is None else source.data
    if not isinstance(data, dict):
        raise WrongType("an override file must be a mapping", loc=Loc(file, 1, 1))
    before = list(data.get(key) or [])
    page = _Page.of(text)
    in_flow = source.data is not None and (key in data and page.at(source.values[(key,)]) == "[")
    all_flow = source.data is not None and page.at(source.values[()]) == "{"
    # Where a list in brackets ends is not known, so that a new entry is its first.
    after = {**data, key: [dict(entry), *before] if in_flow else [*before, dict(entry)]}
    if all_flow:
        changed = _added_in_flow(page, source, key, entry)
    elif key not in data:
        ended = page.text if not page.text or page.text.endswith("\n") else page.text + page.newline
        changed = ended + page.newline.join([f"{key}:", *_block("  ", entry), ""])
    elif not before:
        changed = _begun(page, source, key, entry)
    elif in_flow:
        changed = page.inserted(page.offset(source.values[(key,)]) + 1, f"{_flow(entry)}, ")
    else:
        first, end = page.item(source.values[(key, len(before) - 1)])
        changed = page.with_lines(end, end, _block(" " * first.column, entry))
    return _checked(changed, file, after)


def _added_in_flow(page: _Page, source: YamlSource, key: str, entry: Entry) -> str:
    if key in source.data and not source.data[key]:
        return _begun(page, source, key, entry)
    if key in source.data:
        return page.inserted(page.offset(source.values[(key,)]) + 1, f"{_flow(entry)}, ")
    rest = ", " if source.data else ""
    return page.inserted(page.offset(source.values[()]) + 1, f"{key}: [{_flow(entry)}]{rest}")


def _begun(page: _Page, source: YamlSource, key: str, entry: Entry) -> str:
    """The first entry of a list that is there and empty."""
    at = page.offset(source.values[(key,)])
    if page.text[at : at + 1] == "[":
        return page.inserted(at + 1, _flow(entry))
    word = re.match(r"~|[nN]ull|NULL", page.text[at:])
    if word:
        return page.text[:at] + f"[{_flow(entry)}]" + page.text[at + word.end() :]
    line, column = source.keys[(key,)]
    return page.with_lines(line, line, _block(" " * (column + 1), entry))


def _block(indent: str, entry: Entry) -> list[str]:
    line = f"{indent}- {_flow(entry)}"
    if len(line) <= WIDTH:
        return [line]
    lines = []
    for number, (name, value) in enumerate(entry.items()):
        lead = f"{indent}{'- ' if number == 0 else '  '}{name}:"
        if isinstance(value, list):
            lines += [lead, *(f"{indent}    - {_scalar(item)}" for item in value)]
        else:
            lines.append(f"{lead} {_scalar(value)}")
    return lines


def _flow(entry: Entry) -> str:
    parts = []
    for name, value in entry.items():
        told = f"[{', '.join(map(_scalar, value))}]" if isinstance(value, list) else _scalar(value)
        parts.append(f"{name}: {told}")
    return "{" + ", ".join(parts) + "}"


def _scalar(value: str) -> str:
    """Plain where nothing could read it as anything but this text."""
    if _PLAIN.match(value) and yaml_source.plain_scalar(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


# Removing ------------------------------------------------------------------------------------------------


def remove_entry(text: str, file: str, key: str, number: int) -> str:
    """Without the lines of one entry, and without the key if nothing is left; comments of lines of their own
    stay."""
    source = yaml_source.parse(text, file)
    after = {**source.data, key: [e for n, e in enumerate(source.data[key]) if n != number]}
    page = _Page.of(text)
    start = source.values[(key, number)]
    if page.at(source.values[(key,)]) == "[":
        changed = page.without_flow_item(page.offset(start))
    else:
        first, end = page.item(start)
        begin = first.line - 1
        if not after[key] and page.is_bare(source.keys[(key,)], key, begin, end):
            begin -= 1
        changed = page.with_lines(begin, end, [])
    return _checked(changed, file, after)


def _checked(text: str, file: str, wanted: Mapping[str, Any]) -> str:
    """YAML can be written in more ways than are understood here: what was meant is held against what it
    says now."""
    found = yaml_source.parse(text, file).data or {}
    if _plain(found) != _plain(wanted):
        raise InvalidValue(
            "the file is written in a way that a program can't change without harm",
            loc=Loc(file),
            hint="edit it by hand, one entry a line",
        )
    return text


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value not in (None, [], ())}


# Text ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Start:
    line: int
    """From 1."""
    column: int
    """Of the dash, from 0."""


@dataclass(frozen=True, slots=True)
class _Page:
    text: str
    lines: list[str]
    """With their ends."""
    newline: str

    @staticmethod
    def of(text: str) -> _Page:
        return _Page(text, text.splitlines(keepends=True), "\r\n" if "\r\n" in text else "\n")

    def offset(self, mark: tuple[int, int]) -> int:
        line, column = mark
        return sum(map(len, self.lines[: line - 1])) + column - 1

    def at(self, mark: tuple[int, int]) -> str:
        at = self.offset(mark)
        return self.text[at : at + 1]

    def inserted(self, at: int, text: str) -> str:
        return self.text[:at] + text + self.text[at:]

    def with_lines(self, first: int, end: int, new: Sequence[str]) -> str:
        """Other lines instead of those from `first` to before `end`, counted from 0."""
        before, after = self.lines[:first], self.lines[end:]
        if before and not before[-1].endswith("\n") and new:
            before[-1] += self.newline
        return "".join([*before, *(line + self.newline for line in new), *after])

    def item(self, mark: tuple[int, int]) -> tuple[_Start, int]:
        """Where an item of a block list starts, and after which line it ends."""
        line, column = mark
        head = self.lines[line - 1][: column - 1]
        while "-" not in head.strip(" ")[:1]:
            line -= 1
            head = self.lines[line - 1]
        dash = len(head) - len(head.lstrip(" "))
        end = mark[0]
        for number in range(mark[0], len(self.lines)):
            body = self.lines[number].strip()
            if not body or body.startswith("#"):
                continue
            if len(self.lines[number]) - len(self.lines[number].lstrip(" ")) <= dash:
                break
            end = number + 1
        return _Start(line, dash), end

    def is_bare(self, mark: tuple[int, int], key: str, begin: int, end: int) -> bool:
        """Whether lines are all that stands below a key: no comment would lose its place."""
        below = self.lines[end][:1] if end < len(self.lines) else ""
        return mark[0] == begin and self.lines[begin - 1].rstrip() == f"{key}:" and below not in (" ", "\t")

    def without_flow_item(self, start: int) -> str:
        end = _flow_end(self.text, start)
        after = re.match(r"\s*,[ \t]*", self.text[end:])
        if after:
            return self.text[:start] + self.text[end + after.end() :]
        before = re.search(r",\s*\Z", self.text[:start])
        return self.text[: before.start() if before else start] + self.text[end:]


def _flow_end(text: str, start: int) -> int:
    """After the bracket that closes the one at `start`."""
    waiting: list[str] = []
    at = start
    while at < len(text):
        letter = text[at]
        if letter in "\"'":
            at = _quote_end(text, at)
            continue
        if letter == "#" and text[at - 1 : at].isspace():
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
            continue
        if letter in _CLOSING:
            waiting.append(_CLOSING[letter])
        elif waiting and letter == waiting[-1]:
            waiting.pop()
        at += 1
        if not waiting:
            return at
    return len(text)


def _quote_end(text: str, start: int) -> int:
    """After the closing quote. In a plain scalar an apostrophe is none, but names that have one are quoted
    when they are written here, and what is misread is found by the check of the result."""
    quote, at = text[start], start + 1
    while at < len(text) and text[at] != quote:
        at += 2 if quote == '"' and text[at] == "\\" else 1
    return at + 1


# Files ---------------------------------------------------------------------------------------------------


def rewrite(file: Path, change: Callable[[str], str]) -> tuple[str, str]:
    """The text before and after. A reader sees one or the other, whole."""
    target = file.resolve()
    raw = target.read_bytes() if target.exists() else b""
    mark = "\ufeff" if raw.startswith(b"\xef\xbb\xbf") else ""
    before = raw.decode("utf-8-sig")
    after = change(before)
    if after == before:
        return before, after
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write((mark + after).encode())
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o644)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return before, after
