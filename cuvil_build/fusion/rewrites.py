"""Stage `fold`: rewrites, best gain first, until none is left."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from cuvil_build.errors import InvalidValue
from cuvil_build.fusion.candidates import Candidate, Finder, Index, Key, Refusal
from cuvil_build.fusion.grow import NO_LIMITS, Limits
from cuvil_build.fusion.journal import Journal
from cuvil_build.fusion.match import Match
from cuvil_build.fusion.pattern import GraphPattern
from cuvil_build.fusion.rule import Rule

MOST_AT_ONE_PLACE = 8
"""Rewrites of one value that leave no fewer nodes than they found."""
MOST_PER_NODE = 4
"""Rewrites, for each node that the graph had."""


@dataclass(slots=True)
class Rewrites:
    finder: Finder
    journal: Journal
    rules: Sequence[Rule]
    reserved: frozenset[ir.Node] = frozenset()
    """Nodes that a pin keeps for a region."""
    _index: Index = field(init=False)
    _heights: dict[tuple[str, int], int] = field(init=False)
    _touched: list[ir.Node] = field(default_factory=list)
    """New nodes, and those that make what the old ones read."""
    _replaced: set[ir.Value] = field(default_factory=set)
    _places: dict[str, list[str]] = field(default_factory=dict)
    """By name of a result: the rules that rewrote it without making the graph smaller."""
    _recent: list[str] = field(default_factory=list)
    _size: int = field(init=False)

    def __post_init__(self) -> None:
        self._index = Index.of(self.rules)
        self._heights = {
            (rule.name, number): pattern.height
            for rule in self.rules
            for number, pattern in enumerate(rule.patterns)
            if isinstance(pattern, GraphPattern)
        }
        self._size = len(self.finder.scope.needed) + MOST_AT_ONE_PLACE

    def run(self) -> None:
        self._pins()
        roots = dict.fromkeys(self.finder.scope.nodes(), 0)
        while roots:
            self._round(roots)
            roots = self._affected()

    def _pins(self) -> None:
        by_name = {rule.name: rule for rule in self.rules}
        for pin in self.finder.overrides.pinned():
            if pin.rule not in by_name:
                continue
            nodes = self.finder.nodes_of(pin)
            candidate = self.finder.pinned(by_name[pin.rule], pin, nodes) if nodes else None
            self._tell_overridden()
            if candidate is not None:
                self._apply(candidate)

    def _round(self, roots: Mapping[ir.Node, int]) -> None:
        """Looks at nodes once; what a rewrite leaves is looked at in the next round. `roots` tell how far
        above them anything has changed."""
        limits = Limits(self.reserved) if self.reserved else NO_LIMITS
        heap: list[tuple[Key, Candidate]] = []
        claims: dict[ir.Node, dict[str, None]] = {}
        for root, distance in roots.items():
            for rule, number in self._index.at(self.finder.scope, root):
                if distance > self._heights[rule.name, number]:
                    continue
                candidate = self.finder.at(rule, number, root, limits)
                if candidate is not None:
                    heap.append((candidate.key, candidate))
                    for node in candidate.nodes:
                        claims.setdefault(node, {})[rule.name] = None
        self._tell_overridden()
        heapq.heapify(heap)
        self._replaced.clear()
        while heap:
            _, candidate = heapq.heappop(heap)
            if candidate.found.root.graph is None:
                continue
            if self._is_stale(candidate):
                found, told = candidate.found, len(self.finder.refusals)
                fresh = self.finder.at(found.rule, found.number, found.root, limits)
                self._tell_overridden(told)
                if fresh is not None:
                    heapq.heappush(heap, (fresh.key, fresh))
                continue
            contested = {name for node in candidate.nodes for name in claims.get(node, ())}
            self._apply(candidate, contested - {candidate.rule.name})
        self.journal.refused(self.finder, self._that_matter())

    def _affected(self) -> dict[ir.Node, int]:
        """Nodes whose matches may have changed with what was rewritten since the last time, and how far they
        are from it."""
        scope = self.finder.scope
        found = [node for node in self._touched if node.graph is not None]
        seen = dict.fromkeys(found, 0)
        for distance in range(1, max(self._heights.values(), default=0) + 1):
            found = [u for node in found for v in node.outputs for u in scope.users(v) if u not in seen]
            seen.update(dict.fromkeys(found, distance))
        self._touched.clear()
        needed = sorted((n for n in seen if n in scope.needed), key=scope.order, reverse=True)
        return {node: seen[node] for node in needed}

    def _is_stale(self, candidate: Candidate) -> bool:
        if any(node.graph is None for node in candidate.nodes):
            return True
        return any(value in self._replaced for value in candidate.found.values.values())

    def _tell_overridden(self, since: int = 0) -> None:
        """What an override decided is told before other rewrites take the nodes away: they often do, as they
        may have them only because of it."""
        refused = self.finder.refusals[since:]
        decided = [refusal for refusal in refused if refusal.override is not None]
        if decided:
            self.journal.refused(self.finder, decided)
            self.finder.refusals[since:] = [refusal for refusal in refused if refusal.override is None]

    def _that_matter(self) -> list[Refusal]:
        refusals = [r for r in self.finder.refusals if all(n.graph is not None for n in r.found.nodes)]
        self.finder.refusals.clear()
        return refusals

    def _apply(self, candidate: Candidate, contested: Iterable[str] = ()) -> None:
        found, finder = candidate.found, self.finder
        pattern, replacement = found.rule.patterns[found.number], found.rule.replacement
        assert isinstance(pattern, GraphPattern) and replacement is not None
        self.journal.applied(finder, candidate, contested)
        match = Match(found.values, found.nodes)
        draft = finder.replacer.draft(match, pattern, replacement)
        self._watch(found.rule.name, found.result.name or "", len(draft.nodes) - len(found.nodes))
        self._replaced.add(found.result)
        self._touched += [m for n in found.nodes for v in n.inputs if v is not None and (m := v.producer())]
        new = finder.replacer.commit(draft, match)
        self._touched += new
        for node in new:
            finder.scope.sources[node] |= self.journal.bits[found.rule.name]

    def _watch(self, rule: str, place: str, growth: int) -> None:
        """Rules that undo each other come back to the same value again and again."""
        if growth >= 0:
            self._places.setdefault(place, []).append(rule)
        self._recent.append(rule)
        at_place = self._places.get(place, ())
        if len(at_place) > MOST_AT_ONE_PLACE:
            raise _endless(at_place, f" at value '{place}'")
        if len(self._recent) > MOST_PER_NODE * self._size:
            raise _endless(self._recent[-MOST_AT_ONE_PLACE:], "")


def _endless(rules: Iterable[str], place: str) -> InvalidValue:
    names = sorted(set(rules))
    if len(names) == 1:
        told = f"rule '{names[0]}' finds what it leaves{place}, and would rewrite it for ever"
    else:
        told = f"rules {' and '.join(repr(name) for name in names)} undo each other{place}"
    hint = "leave one out of fusion.rules, deny it, or let its 'where' see what was done"
    return InvalidValue(told, hint=hint)
