"""`fusion.overrides.yaml`: what the user forbids the rules to do."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from cuvil_build import yaml_source
from cuvil_build.errors import CuvilError, InvalidValue, Loc, NotYet, WrongType, nearest
from cuvil_build.fusion.mistakes import raise_errors, translated

NOT_YET = ("force", "pin")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DenyEntry(_Record):
    rule: str = Field(description="Name of a rule.")
    nodes: str = Field("*", description="Pattern of node names of the source model.")


class OverridesFile(_Record):
    """The keys of an override file."""

    deny: Annotated[tuple[DenyEntry, ...], BeforeValidator(_tuple)] = ()


@dataclass(frozen=True, slots=True)
class Deny:
    """The rule applies to no region that has such a node."""

    rule: str
    nodes: str
    loc: Loc

    def forbids(self, rule: str, names: Iterable[str]) -> bool:
        return rule == self.rule and any(fnmatch.fnmatchcase(name, self.nodes) for name in names)


def load_overrides(file: Path, rules: Sequence[str], display: str = "") -> list[Deny]:
    """`rules` are the names of the rules that run."""
    source = yaml_source.load(file, display or file.name)
    data = {} if source.data is None else source.data
    if not isinstance(data, dict):
        raise WrongType("an override file must be a mapping", loc=source.loc(()))
    errors: list[CuvilError] = []
    for key in NOT_YET:
        if key in data:
            errors.append(NotYet(f"'{key}' in an override file", loc=source.loc((key,), key=True)))
    try:
        parsed = OverridesFile.model_validate({k: v for k, v in data.items() if k not in NOT_YET})
    except ValidationError as error:
        raise_errors([*errors, *translated(error, source, (OverridesFile, DenyEntry))])
        raise
    found: list[Deny] = []
    for number, entry in enumerate(parsed.deny):
        loc = source.loc(("deny", number, "rule"))
        if entry.rule not in rules:
            errors.append(
                InvalidValue(f"there is no rule '{entry.rule}'", loc=loc, hint=nearest(entry.rule, rules))
            )
        found.append(Deny(entry.rule, entry.nodes, loc))
    raise_errors(errors)
    return found


def unused_warnings(overrides: Sequence[Deny], used: Iterable[Deny], names: Iterable[str]) -> list[str]:
    """One line for each override that matched nothing."""
    matched = set(used)
    known = sorted(set(names))
    lines = []
    for entry in overrides:
        if entry in matched:
            continue
        hint = nearest(entry.nodes, known) if len(known) > 12 else ""
        lines.append(
            f"{entry.loc}: warning: nothing that rule '{entry.rule}' would do has a node '{entry.nodes}'"
            + (f" ({hint})" if hint else "")
        )
    return lines
