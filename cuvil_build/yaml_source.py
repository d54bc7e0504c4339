"""YAML text to plain data, with the line and column of every key and value.

Built on libyaml's event stream, which is iterative and reports marks, rather than on a loader: duplicate
keys are errors, only `true` and `false` are booleans (YAML 1.1 reads `no` and `on` as such), numbers are
decimal, hexadecimal or octal with a prefix and never base 60, dates stay text, and what aliases expand to
is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cuvil_build.errors import (
    CuvilError,
    DuplicateKey,
    Loc,
    ManyErrors,
    MissingFile,
    YamlSyntax,
    YamlTooLarge,
)

KeyPath = tuple[str | int, ...]
Mark = tuple[int, int]

MAX_BYTES = 4 << 20
MAX_DEPTH = 64
MAX_VALUES = 100_000
"""Keys and values after aliases are expanded: a few hundred bytes of aliases can stand for billions."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})\Z")
_PREFIXED = re.compile(r"(0x[0-9a-fA-F]{1,16}|0o[0-7]{1,20})\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]{1,4})?\Z")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class YamlSource:
    """The data of one YAML document and where each part of it stands."""

    file: str
    data: Any
    keys: Mapping[KeyPath, Mark]
    values: Mapping[KeyPath, Mark]
    plain: frozenset[KeyPath]
    """Paths of text values that were written without quotes."""

    def loc(self, path: Iterable[str | int], *, key: bool = False) -> Loc:
        """Where a value (or its key) stands; of a path that is not there, its nearest parent."""
        at = tuple(path)
        marks = self.keys if key else self.values
        mark = marks.get(at) or self.values.get(at) or self.keys.get(at)
        while mark is None and at:
            at = at[:-1]
            mark = self.keys.get(at) or self.values.get(at)
        line, column = mark or (1, 1)
        return Loc(self.file, line, column)


@dataclass(slots=True)
class _Node:
    mark: Mark
    scalar: yaml.ScalarEvent | None = None
    items: list[_Node] | None = None
    pairs: list[tuple[_Node, _Node]] | None = None


def load(path: Path, display: str = "") -> YamlSource:
    """Read a file; `display` is its name in messages."""
    name = display or str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise MissingFile("there is no such file", loc=Loc(name)) from None
    except OSError as error:
        raise MissingFile(f"cannot be read: {error.strerror}", loc=Loc(name)) from None
    if len(raw) > MAX_BYTES:
        raise YamlTooLarge(f"the file is larger than {MAX_BYTES} bytes", loc=Loc(name))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise YamlSyntax("the text is not UTF-8", loc=Loc(name, line)) from None
    return parse(text, name)


def parse(text: str, file: str) -> YamlSource:
    """Parse text; several mistakes that do not hide each other come as `ManyErrors`."""
    if len(text) > MAX_BYTES:
        raise YamlTooLarge(f"the text is longer than {MAX_BYTES} characters", loc=Loc(file))
    root = _compose(text, file)
    builder = _Builder(file)
    data = None if root is None else builder.value(root, ())
    if errors := list({str(error): error for error in builder.errors}.values()):
        raise errors[0] if len(errors) == 1 else ManyErrors(errors)
    return YamlSource(file, data, builder.keys, builder.values, frozenset(builder.plain))


def compose(text: str) -> Any:
    """The tree of libyaml's nodes, with the marks where each begins and ends: for those who edit the text."""
    return yaml.compose(text, Loader=yaml.SafeLoader)


def parse_value(text: str, file: str) -> Any:
    """One value as it would stand in YAML after a colon: for `--set` and the environment."""
    return parse(text, file).data


def plain_scalar(text: str) -> Any:
    """The value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text)
    if _PREFIXED.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        return float(text)
    return text


def _events(text: str, file: str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlSyntax(str(error.reason), loc=Loc(file, line)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Loc(file, mark.line + 1, mark.column + 1) if mark else Loc(file)
        problem = " ".join(part for part in (error.problem, error.context) if part)
        if error.context_mark and error.context_mark.line + 1 != place.line:
            problem += f" that begins at {error.context_mark.line + 1}:{error.context_mark.column + 1}"
        hint = "indent with spaces" if "cannot start any token" in problem else ""
        raise YamlSyntax(problem, loc=place, hint=hint) from None


def _compose(text: str, file: str) -> _Node | None:
    """The node tree; iterative, so that depth is a limit of ours and not of the stack."""
    composer = _Composer()
    for count, event in enumerate(_events(text, file)):
        loc = Loc(file, event.start_mark.line + 1, event.start_mark.column + 1)
        if count > 2 * MAX_VALUES:
            raise YamlTooLarge(f"more than {MAX_VALUES} values", loc=loc)
        composer.take(event, loc)
    return composer.root


@dataclass(slots=True)
class _Composer:
    root: _Node | None = None
    open_nodes: list[tuple[_Node, str | None]] = field(default_factory=list)
    waiting_keys: list[_Node | None] = field(default_factory=list)
    """For each open node the key that waits for its value."""
    anchors: dict[str, _Node | None] = field(default_factory=dict)

    def take(self, event: Any, loc: Loc) -> None:
        mark = (loc.line, loc.column)
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise YamlSyntax("a second document starts here", loc=loc, hint="one file holds one document")
        if isinstance(event, yaml.ScalarEvent):
            self._close(_Node(mark, scalar=event), event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._place(self._anchored(str(event.anchor), loc))
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event, mark, loc)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.waiting_keys.pop()
            self._close(*self.open_nodes.pop())

    def _anchored(self, anchor: str, loc: Loc) -> _Node:
        if anchor not in self.anchors:
            raise YamlSyntax(f"alias '*{anchor}' has no anchor before it", loc=loc)
        node = self.anchors[anchor]
        if node is None:
            raise YamlSyntax(f"anchor '&{anchor}' contains itself", loc=loc)
        return node

    def _open(self, event: Any, mark: Mark, loc: Loc) -> None:
        sequence = isinstance(event, yaml.SequenceStartEvent)
        _check_tag(event.tag, ("seq",) if sequence else ("map",), loc)
        if len(self.open_nodes) == MAX_DEPTH:
            raise YamlTooLarge(f"nested deeper than {MAX_DEPTH}", loc=loc)
        if event.anchor:
            self.anchors[event.anchor] = None
        self.open_nodes.append((_Node(mark, items=[]) if sequence else _Node(mark, pairs=[]), event.anchor))
        self.waiting_keys.append(None)

    def _close(self, node: _Node, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = node
        self._place(node)

    def _place(self, node: _Node) -> None:
        if not self.open_nodes:
            self.root = node
            return
        parent = self.open_nodes[-1][0]
        key = self.waiting_keys[-1]
        if parent.items is not None:
            parent.items.append(node)
        elif key is None:
            self.waiting_keys[-1] = node
        else:
            assert parent.pairs is not None
            parent.pairs.append((key, node))
            self.waiting_keys[-1] = None


def _check_tag(tag: str | None, allowed: tuple[str, ...], loc: Loc) -> None:
    if tag and tag != "!" and tag.removeprefix(_TAG) not in allowed:
        raise YamlSyntax(f"tag '{tag.replace(_TAG, '!!')}' is not supported", loc=loc)


@dataclass(slots=True)
class _Builder:
    file: str
    errors: list[CuvilError] = field(default_factory=list)
    keys: dict[KeyPath, Mark] = field(default_factory=dict)
    values: dict[KeyPath, Mark] = field(default_factory=dict)
    plain: set[KeyPath] = field(default_factory=set)
    count: int = 0
    merge_depth: int = 0

    def value(self, node: _Node, path: KeyPath) -> Any:
        self.count += 1
        if self.count > MAX_VALUES or len(path) > MAX_DEPTH:
            raise YamlTooLarge("aliases expand to too many values", loc=self._loc(node))
        self.values[path] = node.mark
        if node.scalar is not None:
            return self._scalar(node, path)
        if node.items is not None:
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        return self._mapping(node, path)

    def _loc(self, node: _Node) -> Loc:
        return Loc(self.file, *node.mark)

    def _scalar(self, node: _Node, path: KeyPath) -> Any:
        event = node.scalar
        assert event is not None
        tag = (event.tag or "").removeprefix(_TAG)
        if tag == "str" or (not tag and not event.implicit[0]) or tag == "!":
            return event.value
        _check_tag(event.tag, ("int", "float", "bool", "null"), self._loc(node))
        value = plain_scalar(event.value)
        if isinstance(value, str):
            self.plain.add(path)
        return value

    def _mapping(self, node: _Node, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merges: list[_Node] = []
        assert node.pairs is not None
        for key_node, value_node in node.pairs:
            if key_node.scalar is None:
                raise YamlSyntax("a key must be text", loc=self._loc(key_node))
            key = key_node.scalar.value
            if key == "<<" and key_node.scalar.implicit[0]:
                merges += value_node.items if value_node.items is not None else [value_node]
                continue
            if key in result:
                line, column = self.keys[(*path, key)]
                message = f"key '{key}' is already set at {line}:{column}"
                self.errors.append(DuplicateKey(message, loc=self._loc(key_node), hint="remove one of them"))
                continue
            self.keys[(*path, key)] = key_node.mark
            result[key] = self.value(value_node, (*path, key))
        for merged in merges:
            self._merge(merged, path, result)
        return result

    def _merge(self, merged: _Node, path: KeyPath, into: dict[str, Any]) -> None:
        if merged.pairs is None:
            raise YamlSyntax("'<<' needs a mapping or a list of mappings", loc=self._loc(merged))
        if self.merge_depth == MAX_DEPTH:
            raise YamlTooLarge(f"'<<' nested deeper than {MAX_DEPTH}", loc=self._loc(merged))
        inner = _Builder(self.file, errors=self.errors, count=self.count, merge_depth=self.merge_depth + 1)
        data = inner._mapping(merged, path)
        taken = {key for key in data if key not in into}
        at = len(path)
        into.update((key, data[key]) for key in data if key in taken)
        self.keys.update((p, mark) for p, mark in inner.keys.items() if p[at] in taken)
        self.values.update((p, mark) for p, mark in inner.values.items() if p[at] in taken)
        self.plain.update(p for p in inner.plain if p[at] in taken)
        self.count = inner.count
