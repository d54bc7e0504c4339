"""Gathers decisions: what was applied, and of what was refused that which mattered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from cuvil_build.errors import CuvilError, InvalidValue, ManyErrors
from cuvil_build.fusion.candidates import Candidate, Finder, Found, Refusal
from cuvil_build.fusion.decisions import Decision
from cuvil_build.fusion.expression import Expression, NotKnown
from cuvil_build.fusion.gain import Cost
from cuvil_build.fusion.overrides import Override, Pin
from cuvil_build.fusion.scope import Order
from cuvil_build.fusion.trust import Trust, model_factor, numeric_factor


@dataclass(slots=True)
class Journal:
    bits: Mapping[str, int]
    """Of `fusion_src`, by the names of the rules."""
    calibration: Mapping[str, float]
    rows: list[tuple[bool, Order, Decision]] = field(default_factory=list)
    used: dict[Override | Pin, None] = field(default_factory=dict)
    """Overrides that decided something."""
    blocked: dict[Override | Pin, str] = field(default_factory=dict)
    """Overrides that wanted what is not legal, and the first reason."""

    def applied(self, finder: Finder, candidate: Candidate, contested_by: Iterable[str] = ()) -> None:
        """Told before the graph changes."""
        trust = self._trust(finder, candidate.found)
        contested = tuple(sorted(contested_by))
        wanted = candidate.wanted_by
        if wanted is not None:
            self.used[wanted] = None
        review = wanted is None and ((trust.is_low and bool(contested)) or not candidate.saved.is_sure)
        self._note(
            finder,
            candidate.found,
            Decision(
                candidate.rule.name,
                candidate.rule.granularity,
                candidate.rule.stage,
                self._names(finder, candidate.found),
                True,
                self._claims(finder, candidate.found),
                candidate.saved,
                trust,
                contested,
                review,
                override="" if wanted is None else str(wanted),
            ),
        )

    def refused(self, finder: Finder, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            found, override = refusal.found, refusal.override
            if isinstance(override, Override) and override.action == "deny":
                self.used[override] = None
            wanted = override if override is not None and override not in self.used else None
            wanted = wanted or finder.overrides.forced(found.rule.name, finder.names(found.nodes))
            if wanted is not None:
                self.blocked.setdefault(wanted, refusal.reason)
            self._note(
                finder,
                found,
                Decision(
                    found.rule.name,
                    found.rule.granularity,
                    found.rule.stage,
                    self._names(finder, found),
                    False,
                    self._claims(finder, found),
                    Cost(),
                    self._trust(finder, found),
                    refused_by=refusal.reason,
                    override="" if override is None else str(override),
                ),
            )

    def name_function(self, row: int, function: str) -> None:
        """Of an applied region, once it has one."""
        stage, place, decision = self.rows[row]
        self.rows[row] = stage, place, replace(decision, function=function)

    def decisions(self) -> tuple[Decision, ...]:
        """By stage and place; of several of one rule on the same nodes, what came of it."""
        found: dict[str, Decision] = {}
        rows = sorted(self.rows, key=lambda row: (not row[0], row[1], row[2].rule, not row[2].applied))
        for _, _, decision in sorted(rows, key=lambda row: not row[2].applied):
            found.setdefault(decision.id, decision)
        kept = set(map(id, found.values()))
        return tuple(decision for _, _, decision in rows if id(decision) in kept)

    def raise_blocked(self) -> None:
        """What a user forces or pins is applied, or it is an error."""
        errors: list[CuvilError] = [
            InvalidValue(f"{_wish(wanted)}: {reason}", loc=wanted.loc)
            for wanted, reason in sorted(self.blocked.items(), key=lambda row: str(row[0].loc))
            if wanted not in self.used
        ]
        if errors:
            raise errors[0] if len(errors) == 1 else ManyErrors(errors)

    def _note(self, finder: Finder, found: Found, decision: Decision) -> None:
        place = max(finder.scope.order(node) for node in found.nodes)
        self.rows.append((found.rule.stage == "fold", place, decision))

    def _names(self, finder: Finder, found: Found) -> tuple[str, ...]:
        return tuple(finder.names(sorted(found.nodes, key=finder.scope.order)))

    def _claims(self, finder: Finder, found: Found) -> int:
        claims = self.bits[found.rule.name]
        for node in found.nodes:
            claims |= finder.scope.sources.get(node, 0)
        return claims

    def _trust(self, finder: Finder, found: Found) -> Trust:
        rule = found.rule
        kind = _anchor_kind(finder, found.nodes, found.root)
        return Trust(
            _pattern_factor(finder, found), model_factor(kind, self.calibration), numeric_factor(rule.error)
        )


def _pattern_factor(finder: Finder, found: Found) -> float:
    trust = found.rule.trust
    if not isinstance(trust, Expression):
        return trust
    try:
        number = float(trust.compute(found.values, finder.scope.facts))
    except NotKnown:
        return 0.0
    return min(max(number, 0.0), 1.0)


def _anchor_kind(finder: Finder, nodes: Sequence[ir.Node], root: ir.Node) -> str:
    """Of the deepest node that is more than element-wise, as that decides what its kernel costs."""
    deep = sorted(nodes, key=finder.scope.order, reverse=True)
    kinds = [finder.scope.kind(node) for node in deep]
    return next((kind for kind in kinds if kind not in ("map", "view", "")), "map")


def _wish(wanted: Override | Pin) -> str:
    what = "pinned" if isinstance(wanted, Pin) else "forced"
    return f"rule '{wanted.rule}' can't be {what} for {wanted.place}"
