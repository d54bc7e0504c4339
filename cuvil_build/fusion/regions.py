"""Stage `fuse`: regions, best gain first; one that lost nodes to a better one makes do with what is left."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from cuvil_build.cuir.naming import Namer
from cuvil_build.fusion.apply import extract
from cuvil_build.fusion.candidates import Candidate, Finder, Index, Key, Refusal
from cuvil_build.fusion.grow import Limits
from cuvil_build.fusion.journal import Journal
from cuvil_build.fusion.rule import Rule


@dataclass(slots=True)
class Regions:
    """Chooses on the graph as it is, then makes all that was chosen."""

    finder: Finder
    journal: Journal
    rules: Sequence[Rule]
    taken: dict[ir.Node, Candidate] = field(default_factory=dict)
    chosen: list[Candidate] = field(default_factory=list)
    _claims: dict[ir.Node, dict[str, None]] = field(default_factory=dict)
    """Rules that have a legal candidate with the node."""
    _outbid: list[Refusal] = field(default_factory=list)

    def run(self, namer: Namer) -> None:
        self._pins()
        heap = self._all()
        while heap:
            _, candidate = heapq.heappop(heap)
            lost = [node for node in candidate.nodes if node in self.taken]
            if not lost:
                self._choose(candidate)
                continue
            self._note_loss(candidate, lost)
            found = candidate.found
            again = self.finder.at(found.rule, found.number, found.root, Limits(self.taken))
            if again is not None:
                heapq.heappush(heap, (again.key, again))
        self._make(namer)

    def _pins(self) -> None:
        by_name = {rule.name: rule for rule in self.rules}
        for pin in self.finder.overrides.pinned():
            nodes = self.finder.nodes_of(pin) if pin.rule in by_name else frozenset()
            candidate = self.finder.pinned(by_name[pin.rule], pin, nodes) if nodes else None
            if candidate is None:
                continue
            lost = [node for node in candidate.nodes if node in self.taken]
            if lost:
                reason = f"node '{lost[0].name}' is pinned to another region"
                self.finder.refusals.append(Refusal(candidate.found, reason, pin))
            else:
                self._choose(candidate)

    def _all(self) -> list[tuple[Key, Candidate]]:
        index, scope = Index.of(self.rules), self.finder.scope
        heap: list[tuple[Key, Candidate]] = []
        limits = Limits(frozenset(self.taken))
        for root in scope.nodes():
            if root in self.taken:
                continue
            for rule, number in index.at(scope, root):
                candidate = self.finder.at(rule, number, root, limits)
                if candidate is None:
                    continue
                heap.append((candidate.key, candidate))
                for node in candidate.nodes:
                    self._claims.setdefault(node, {})[rule.name] = None
        heapq.heapify(heap)
        return heap

    def _choose(self, candidate: Candidate) -> None:
        self.chosen.append(candidate)
        self.taken.update(dict.fromkeys(candidate.nodes, candidate))

    def _note_loss(self, candidate: Candidate, lost: Sequence[ir.Node]) -> None:
        winners = Counter(self.taken[node].key for node in lost)
        winner = self.taken[lost[0]]
        is_inside = winners[winner.key] == len(candidate.nodes)
        if winner.rule.name == candidate.rule.name or is_inside:
            return
        gains = f"{winner.saved.nanoseconds} ns, against {candidate.saved.nanoseconds} ns"
        reason = f"rule '{winner.rule.name}' gains more with node '{lost[0].name}': {gains}"
        self._outbid.append(Refusal(candidate.found, reason, winner.wanted_by or candidate.wanted_by))

    # The graph and the log --------------------------------------------------------------------------------

    def _make(self, namer: Namer) -> None:
        scope = self.finder.scope
        self.journal.refused(self.finder, self._that_matter())
        chosen = sorted(self.chosen, key=lambda c: scope.order(c.found.root), reverse=True)
        for candidate in chosen:
            others = {name for node in candidate.nodes for name in self._claims.get(node, ())}
            mark = len(self.journal.rows)
            self.journal.applied(self.finder, candidate, others - {candidate.rule.name})
            call = extract(scope, namer, candidate.nodes, candidate.found.result)
            scope.sources[call] |= self.journal.bits[candidate.rule.name]
            self.journal.name_function(mark, call.op_type)

    def _that_matter(self) -> list[Refusal]:
        """Refusals of places that did not become regions anyway, and where regions end."""
        ends = [end for candidate in self.chosen for end in candidate.ends]
        refused = self.finder.refusals
        alone = [r for r in refused if r.override is not None or r.is_group or self._is_open(r)]
        return [*_largest([*ends, *alone]), *self._outbid]

    def _is_open(self, refusal: Refusal) -> bool:
        """Whether its root is in no region."""
        return refusal.found.root not in self.taken


def _largest(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Without those that say of some nodes what another says of more."""
    kept: dict[tuple[str, str, str], list[tuple[set[ir.Node], Refusal]]] = {}
    for refusal in sorted(refusals, key=lambda r: -len(r.found.nodes)):
        nodes = set(refusal.found.nodes)
        same = kept.setdefault((refusal.found.rule.name, refusal.reason, str(refusal.override or "")), [])
        if not any(nodes <= other for other, _ in same):
            same.append((nodes, refusal))
    return [refusal for same in kept.values() for _, refusal in same]
