"""What the page is told of a project, and how a decision of its reader gets into the override file."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuvil_build import yaml_source
from cuvil_build.api import Project
from cuvil_build.cli.fusion_page.gather import Fused, current, known_rules, override_file, stale_warnings
from cuvil_build.cli.fusion_page.server import Answers
from cuvil_build.errors import CuvilError, MissingKey, nearest
from cuvil_build.execute.lock import locked
from cuvil_build.fusion.override_api import (
    DecisionsResponse,
    InvalidRequest,
    OverrideRequest,
    OverrideResponse,
)
from cuvil_build.fusion.override_edit import decide, matching_entries, rewrite
from cuvil_build.fusion.overrides import read_overrides


@dataclass(frozen=True, slots=True)
class Known:
    """What a request may name."""

    rules: tuple[str, ...]
    nodes: frozenset[str]

    @staticmethod
    def of(found: Sequence[Fused]) -> Known:
        return Known(tuple(known_rules(found)), frozenset(name for one in found for name in one.node_lines()))


def answers(project: Project, chosen: Sequence[str]) -> Answers:
    """For variants by their ids, as their last build left them."""
    known: list[Known] = []

    def look_again() -> DecisionsResponse:
        found = current(project, chosen)
        known[:] = [Known.of(found)]
        return look(project, found)

    def decide_one(request: OverrideRequest) -> OverrideResponse:
        if not known:
            known.append(Known.of(current(project, chosen)))
        return write(project, known[0], request)

    return Answers(look_again, decide_one)


def look(project: Project, found: Sequence[Fused]) -> DecisionsResponse:
    views = [one.view() for one in found]
    file = override_file(project)
    try:
        warnings = stale_warnings(project, found, [one.explanation for one in views if not one.stale])
    except CuvilError as error:  # a mistake in the file hides no decision
        return DecisionsResponse(
            file=_name(file), text=_text(file), warnings=str(error).splitlines(), steps=views
        )
    # Of a log that is older than the file nothing can be said.
    warnings = [] if any(one.stale for one in views) else warnings
    return DecisionsResponse(file=_name(file), text=_text(file), warnings=warnings, steps=views)


def write(project: Project, known: Known, request: OverrideRequest) -> OverrideResponse:
    """Checked before anything is written; one writer at a time, whichever process it is in."""
    file = override_file(project)
    if file is None:
        raise MissingKey(
            "cuvil.yaml names no override file",
            hint="add 'fusion: {overrides: fusion.overrides.yaml}' and the file",
        )
    if request.rule not in known.rules:
        raise InvalidRequest(f"there is no rule '{request.rule}'", hint=nearest(request.rule, known.rules))
    _check_nodes(known.nodes, request.nodes)

    def change(text: str) -> str:
        after = decide(text, file.name, request.key, request.rule, request.nodes)
        read_overrides(yaml_source.parse(after, file.name), known.rules)
        return after

    with locked(project.layout.cuvil / "overrides.lock", lambda _: None):
        before, after = rewrite(file, change)
    diff = difflib.unified_diff(
        before.splitlines(), after.splitlines(), file.name, file.name, lineterm="", n=2
    )
    return OverrideResponse(
        file=_name(file),
        changed=before != after,
        diff="".join(f"{line}\n" for line in diff),
        text=after,
        entries=matching_entries(after, file.name, request.rule, request.nodes),
    )


def _check_nodes(known: Collection[str], names: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            hint = nearest(name, known)
            raise InvalidRequest(f"no model has a node '{name}'", hint=hint if len(known) > 12 else "")
    if len(set(names)) < len(names):
        raise InvalidRequest("a node is named twice")


def _name(file: Path | None) -> str:
    return "" if file is None else file.name


def _text(file: Path | None) -> str:
    return file.read_text(encoding="utf-8-sig") if file is not None and file.exists() else ""
