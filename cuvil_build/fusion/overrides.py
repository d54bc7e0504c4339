"""`fusion.overrides.yaml`: what the user forbids the rules to do, or wants them to do."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from cuvil_build import yaml_source
from cuvil_build.errors import CuvilError, InvalidValue, Loc, WrongType, nearest
from cuvil_build.fusion.mistakes import raise_errors, translated
from cuvil_build.yaml_source import YamlSource

ACTIONS = ("deny", "force", "pin")
_WILD = re.compile(r"[*?\[]")


def _tuple(value: Any) -> Any:
    """A key whose entries were all removed, or commented out, is an empty list."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else value


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DenyEntry(_Record):
    rule: str = Field(min_length=1, description="Name of a rule, or a pattern of names.")
    nodes: str = Field("*", min_length=1, description="Pattern of node names of the source model.")
    source: str = Field("", description="Source line, as in `model.py:12`, or a pattern of lines.")


class ForceEntry(_Record):
    rule: str = Field(min_length=1, description="Name of a rule.")
    nodes: str = Field("", description="Pattern of node names of the source model.")
    source: str = Field("", description="Source line, as in `model.py:12`, or a pattern of lines.")

    @model_validator(mode="after")
    def _some_place(self) -> ForceEntry:
        if not self.nodes and not self.source:
            raise ValueError("a forced rule needs 'nodes' or 'source': where it shall apply")
        return self


class PinEntry(_Record):
    rule: str = Field(min_length=1, description="Name of a rule.")
    nodes: Annotated[tuple[str, ...], BeforeValidator(_tuple)] = Field(
        min_length=1, description="Names of the nodes of the source model that become one region."
    )


class OverridesFile(_Record):
    """The keys of an override file."""

    deny: Annotated[tuple[DenyEntry, ...], BeforeValidator(_tuple)] = ()
    force: Annotated[tuple[ForceEntry, ...], BeforeValidator(_tuple)] = ()
    pin: Annotated[tuple[PinEntry, ...], BeforeValidator(_tuple)] = ()


@dataclass(frozen=True, slots=True)
class Override:
    """A rule is denied, or forced, for all regions that have such a node."""

    rule: str
    """Of a denial, a pattern of names."""
    nodes: str
    loc: Loc
    source: str = ""
    """A source line that one of the nodes has as well; empty: any."""
    action: Literal["deny", "force"] = "deny"

    def is_for(self, rule: str) -> bool:
        return fnmatch.fnmatchcase(rule, self.rule) if self.action == "deny" else rule == self.rule

    def touches(self, names: Iterable[str], lines: Mapping[str, Sequence[str]]) -> bool:
        """Whether one of the nodes is meant; `lines` are the source lines of nodes."""
        for name in names:
            if not fnmatch.fnmatchcase(name, self.nodes or "*"):
                continue
            if not self.source or any(is_at_line(line, self.source) for line in lines.get(name, ())):
                return True
        return False

    @property
    def place(self) -> str:
        """What it is about, as a person says it."""
        parts = [f"a node '{self.nodes}'"] if self.nodes and (self.nodes != "*" or not self.source) else []
        return " of ".join([*(parts or ["a node"]), *([f"line '{self.source}'"] if self.source else [])])

    def __str__(self) -> str:
        return f"{self.action} {self.loc.file}:{self.loc.line}"


@dataclass(frozen=True, slots=True)
class Pin:
    """Exactly these nodes become one region, by this rule, before anything else is decided."""

    rule: str
    nodes: tuple[str, ...]
    """Names of the source model's nodes."""
    loc: Loc

    @property
    def place(self) -> str:
        return "the nodes " + ", ".join(f"'{name}'" for name in self.nodes)

    def __str__(self) -> str:
        return f"pin {self.loc.file}:{self.loc.line}"


@dataclass(frozen=True, slots=True)
class Overrides:
    """All entries of an override file, in the order of the file."""

    denials: tuple[Override, ...] = ()
    forces: tuple[Override, ...] = ()
    pins: tuple[Pin, ...] = ()
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Source lines (`path/model.py:12`) of nodes of the model, by name."""

    def on(self, lines: Mapping[str, tuple[str, ...]]) -> Overrides:
        """The same for a model whose nodes come from these lines (see `source_lines`)."""
        return replace(self, lines=lines)

    def denied(self, rule: str, names: Iterable[str]) -> Override | None:
        """What forbids the rule on a region of these nodes."""
        return self._first(self.denials, rule, list(names))

    def forced(self, rule: str, names: Iterable[str]) -> Override | None:
        """What wants the rule on a region of these nodes, whatever contests it."""
        return self._first(self.forces, rule, list(names))

    def pinned(self) -> tuple[Pin, ...]:
        return self.pins

    def _first(self, entries: Iterable[Override], rule: str, names: list[str]) -> Override | None:
        return next((e for e in entries if e.is_for(rule) and e.touches(names, self.lines)), None)

    @property
    def entries(self) -> tuple[Override | Pin, ...]:
        found: list[Override | Pin] = [*self.denials, *self.forces, *self.pins]
        return tuple(sorted(found, key=lambda e: (e.loc.line, e.loc.column)))

    def __bool__(self) -> bool:
        return bool(self.denials or self.forces or self.pins)


NO_OVERRIDES = Overrides()


def is_at_line(line: str, wanted: str) -> bool:
    """`models/vit.py:12` is at `vit.py:12`, at `models/vit.py:12`, at `vit.py` and at `vit.py:*`."""
    pattern = wanted if re.search(r":[^:/\\]+$", wanted) else f"{wanted}:*"
    parts = line.replace("\\", "/").split("/")
    return any(
        fnmatch.fnmatchcase("/".join(parts[at:]), pattern.replace("\\", "/")) for at in range(len(parts))
    )


def load_overrides(file: Path, rules: Sequence[str], display: str = "") -> Overrides:
    """`rules` are the names of the rules that run."""
    return read_overrides(yaml_source.load(file, display or file.name), rules)


def read_overrides(source: YamlSource, rules: Sequence[str]) -> Overrides:
    """All mistakes at once, each with its place."""
    data = {} if source.data is None else source.data
    if not isinstance(data, dict):
        raise WrongType("an override file must be a mapping", loc=source.loc(()))
    errors = list(_unknown_rules(source, data, rules))
    try:
        parsed = OverridesFile.model_validate(data)
    except ValidationError as error:
        raise_errors([*translated(error, source, (OverridesFile, DenyEntry)), *errors])
        raise

    def loc(key: str, number: int) -> Loc:
        return source.loc((key, number, "rule"))

    denials = [Override(e.rule, e.nodes, loc("deny", n), e.source) for n, e in enumerate(parsed.deny)]
    forces = [
        Override(e.rule, e.nodes, loc("force", n), e.source, "force") for n, e in enumerate(parsed.force)
    ]
    pins = [Pin(e.rule, e.nodes, loc("pin", n)) for n, e in enumerate(parsed.pin)]
    raise_errors([*errors, *_repeated(source, pins)])
    return Overrides(tuple(denials), tuple(forces), tuple(pins))


def _unknown_rules(source: YamlSource, data: Mapping[str, Any], rules: Sequence[str]) -> Iterator[CuvilError]:
    """Looks at whatever has the form of an entry, so that other mistakes do not hide these."""
    for key in ACTIONS:
        for number, entry in enumerate(data.get(key) or () if isinstance(data.get(key), list) else ()):
            rule = entry.get("rule") if isinstance(entry, dict) else None
            if not isinstance(rule, str) or not rule or rule in rules:
                continue
            loc = source.loc((key, number, "rule"))
            if key != "deny" or not _WILD.search(rule):
                yield InvalidValue(f"there is no rule '{rule}'", loc=loc, hint=nearest(rule, rules))
            elif not fnmatch.filter(rules, rule):
                yield InvalidValue(f"no rule is called like '{rule}'", loc=loc)


def _repeated(source: YamlSource, pins: Sequence[Pin]) -> Iterator[CuvilError]:
    for number, pin in enumerate(pins):
        for index, name in enumerate(pin.nodes):
            if name in pin.nodes[:index]:
                loc = source.loc(("pin", number, "nodes", index))
                yield InvalidValue(f"node '{name}' is named twice", loc=loc)


def unused_warnings(
    overrides: Overrides | Sequence[Override], used: Iterable[Override | Pin], names: Iterable[str]
) -> list[str]:
    """One line for each override that decided nothing, with what it may have meant; `names` are those of
    the model's nodes."""
    matched = set(used)
    entries = overrides.entries if isinstance(overrides, Overrides) else overrides
    lines = overrides.lines if isinstance(overrides, Overrides) else {}
    known = sorted(set(names))
    return [_unused(entry, known, lines) for entry in entries if entry not in matched]


def _unused(entry: Override | Pin, known: Sequence[str], lines: Mapping[str, Sequence[str]]) -> str:
    told = f"{entry.loc}: warning: "
    if isinstance(entry, Pin):
        missing = [name for name in entry.nodes if name not in set(known)]
        told += f"'pin' of rule '{entry.rule}' decided nothing"
        told += f": the model has no node '{missing[0]}'" if missing else f" for {entry.place}"
        hints = [_nearest_names(missing[0], known)] if missing else []
    else:
        told += f"nothing that rule '{entry.rule}' would do has {entry.place}"
        hints = []
        if not any(fnmatch.fnmatchcase(name, entry.nodes or "*") for name in known):
            hints.append(_nearest_names(entry.nodes, known))
        at = sorted({line for found in lines.values() for line in found})
        if entry.source and not any(is_at_line(line, entry.source) for line in at):
            hints.append(_nearest_names(entry.source, at) if at else "the model names no source lines")
    hint = "; ".join(text for text in hints if text)
    return told + (f" ({hint})" if hint else "")


def _nearest_names(name: str, known: Sequence[str]) -> str:
    """A list of all names of a model would be no hint."""
    hint = nearest(name, known)
    return hint if hint.startswith("did you mean") else ""
