"""Which steps are done already, which run, and which may: decided before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cuvil_build.plan.dag import Dag
from cuvil_build.plan.ingredients import complete, input_digests, key_of
from cuvil_build.plan.node import Node
from cuvil_build.plan.why import differences
from cuvil_build.steps.artifact import Action


class Status(StrEnum):
    KNOWN = "known"
    """The store has its outputs."""
    RUN = "run"
    """All of its ingredients are known, its outputs are not."""
    MAY_RUN = "may run"
    """It reads an output of a step that runs; the same output stops the rebuild."""


@dataclass(frozen=True, slots=True)
class Resolved:
    node: Node
    status: Status
    reason: str = ""
    ingredients: Mapping[str, object] | None = None
    """None while an input is not known."""
    key: str = ""
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the planner asks of the world; plain functions, so that planning can be tried without a disk."""

    find: Callable[[str], Action | None]
    """The finished action of a key."""
    usable: Callable[[Node, str, Action], bool]
    """Whether its outputs are in place, or can be put there."""
    previous: Callable[[str], Mapping[str, object] | None]
    """Ingredients of the last time that the step was brought up to date here."""


def resolve(dag: Dag, know: Knowledge, forced: Collection[str] = ()) -> dict[str, Resolved]:
    """Every node with its status, in topological order."""
    found: dict[str, Resolved] = {}
    done: dict[str, Action] = {}
    for node in dag:
        waits = sorted({source.node for source in node.inputs.values() if source.node not in done})
        if waits or node.pending:
            found[node.id] = Resolved(node, Status.MAY_RUN, _waiting(waits))
            continue
        ingredients = complete(node.static, input_digests(node, done))
        resolved = _look_up(node, ingredients, know, node.id in forced)
        found[node.id] = resolved
        if resolved.action is not None:
            done[node.id] = resolved.action
    return found


def _look_up(node: Node, ingredients: Mapping[str, object], know: Knowledge, forced: bool) -> Resolved:
    key = key_of(ingredients)
    if forced:
        return Resolved(node, Status.RUN, "forced", ingredients, key)
    action = know.find(key)
    if action is not None and know.usable(node, key, action):
        return Resolved(node, Status.KNOWN, "", ingredients, key, action)
    return Resolved(node, Status.RUN, _reason(node, ingredients, know), ingredients, key)


def _reason(node: Node, ingredients: Mapping[str, object], know: Knowledge) -> str:
    before = know.previous(node.id)
    if before is None:
        return "first build"
    changes = differences(before, ingredients)
    if not changes:
        return "its outputs are gone, and the store does not have them"
    more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
    return f"{changes[0]}{more}"


def _waiting(waits: list[str]) -> str:
    if not waits:
        return "known after the step before it"
    more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
    return f"reads {waits[0]}{more}"
