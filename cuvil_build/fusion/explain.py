"""The decision log as people and programs read it, with what was measured of each region."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Errors = Mapping[frozenset[str], float]
"""The largest error of a kernel, by the source nodes that it computes."""


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Trust(_Told):
    """What the trust in a decision is made of, each from 0 to 1."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    pattern: float = Field(1.0, description="How sure the rule is of its pattern's gain.")
    model: float = Field(1.0, description="How near the cost model was for kernels of this kind.")
    numeric: float = Field(1.0, description="How far the rule's own cases stay below the tolerance.")


class DecisionRow(_Told):
    """One line of `decisions.jsonl`."""

    # An older log is read as well: what it does not say has a default, what it says more is passed over.
    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str = Field("", description="The same as long as the rule and the nodes are.")
    rule: str
    granularity: str = ""
    stage: str = ""
    nodes: tuple[str, ...] = Field(description="Names of the source model's nodes.")
    applied: bool
    fusion_src: int = Field(0, description="Bits of the rules that claimed the region; see `rules`.")
    bytes_saved: int = Field(0, description="Predicted memory traffic saved in one run.")
    flops_saved: int = Field(0, description="Predicted operations saved; below zero where more are done.")
    gain: int = Field(0, description="Predicted nanoseconds of the reference machine.")
    decision_trust: float = 0.0
    trust: Trust | None = None
    contested_by: tuple[str, ...] = Field((), description="Rules that could have had some of the nodes.")
    review: bool = Field(False, description="A person should look at it.")
    function: str = Field("", description="Function of the fused graph, of an applied fusion.")
    refused_by: str = Field("", description="The constraint that said no.")
    override: str = Field("", description="The entry of the override file that decided.")
    error: float | None = Field(None, description="Largest error of the region's kernels, as measured.")


class RuleBit(_Told):
    """What a bit of `fusion_src` stands for."""

    rule: str
    mask: int


class Explanation(_Told):
    """What one run of the rules decided."""

    step: str
    variants: tuple[str, ...]
    rules: tuple[RuleBit, ...]
    decisions: tuple[DecisionRow, ...]

    @property
    def is_measured(self) -> bool:
        return any(row.error is not None for row in self.decisions)


def read_decisions(text: str) -> list[DecisionRow]:
    return [DecisionRow.model_validate(json.loads(line)) for line in text.splitlines() if line.strip()]


def rule_bits(names: Iterable[str]) -> tuple[RuleBit, ...]:
    """Bits are counted by the rules in the order of their names."""
    return tuple(RuleBit(rule=name, mask=1 << n) for n, name in enumerate(sorted(names)))


def mask_names(mask: int, rules: Iterable[RuleBit]) -> list[str]:
    return [bit.rule for bit in rules if mask & bit.mask]


def kernel_errors(calls: Mapping[str, Sequence[str]], regions: Mapping[str, float]) -> Errors:
    """From what modules and reports say: `calls` are the regions that each kernel computes, `regions` the
    errors of those that were run by themselves. Equal regions are one kernel, and one of them was run."""
    found: dict[frozenset[str], float] = {}
    for titles in calls.values():
        errors = [regions[title] for title in titles if title in regions]
        for title in titles if errors else ():
            nodes = frozenset(title.split(", "))
            found[nodes] = max(*errors, found.get(nodes, 0.0))
    return found


def with_errors(rows: Iterable[DecisionRow], errors: Errors) -> list[DecisionRow]:
    """An applied decision has the largest error of the kernels that compute nothing but its nodes."""
    return [_measured(row, errors) if row.applied and errors else row for row in rows]


def _measured(row: DecisionRow, errors: Errors) -> DecisionRow:
    # A kernel names the first nodes that it computes and leaves out the rest of many.
    nodes = set(row.nodes)
    mine = [error for computed, error in errors.items() if computed <= nodes]
    return row.model_copy(update={"error": max(mine)}) if mine else row


def matching(
    rows: Iterable[DecisionRow], node: str = "", rule: str = "", *, refused: bool = False
) -> list[DecisionRow]:
    """Those on a node and of a rule with such names; `refused`: refusals alone."""
    return [
        row
        for row in rows
        if (not node or any(fnmatchcase(name, node) for name in row.nodes))
        and (not rule or fnmatchcase(row.rule, rule))
        and not (refused and row.applied)
    ]


def by_gain(rows: Iterable[DecisionRow]) -> list[DecisionRow]:
    """Those that count most first."""
    return sorted(rows, key=lambda r: (-r.gain, -r.bytes_saved, -r.flops_saved, r.rule, r.nodes))


def as_json(found: Sequence[Explanation]) -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in found]
