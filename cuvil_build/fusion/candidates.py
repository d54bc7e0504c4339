"""What rules could do: regions and rewrites that are legal, each with its gain, and why others are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from cuvil_build.cuir.locations import source_nodes
from cuvil_build.errors import Internal
from cuvil_build.fusion.expression import NotKnown
from cuvil_build.fusion.gain import Cost, Costs
from cuvil_build.fusion.grow import NO_LIMITS, Limits, grow
from cuvil_build.fusion.keeping import Keeping
from cuvil_build.fusion.match import Match, find_matches, obstacle, product_of
from cuvil_build.fusion.overrides import Override, Overrides, Pin
from cuvil_build.fusion.pattern import ANCHOR, RESULT, Chain, GraphPattern, OpName, Pattern, PatternNode
from cuvil_build.fusion.replace import Refused, Replacer
from cuvil_build.fusion.rule import GRANULARITIES, Rule
from cuvil_build.fusion.scope import Scope

Key = tuple[bool, int, int, int, str, str, int]


@dataclass(frozen=True, slots=True)
class Found:
    """A place that a rule matches."""

    rule: Rule
    number: int
    """Of the pattern within the rule."""
    root: ir.Node
    """A chain's anchor, or the node that makes a graph pattern's output."""
    nodes: tuple[ir.Node, ...]
    result: ir.Value
    values: Mapping[str, ir.Value]
    """What constraints and formulas call by name."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a rule would have done, and what said no."""

    found: Found
    reason: str
    override: Override | Pin | None = None
    is_group: bool = False
    """A group that would gain nothing: told also where its nodes are in other regions."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a rule may do."""

    found: Found
    saved: Cost
    key: Key
    """The least is best. No two candidates have the same, and none depends on the order of files or nodes."""
    wanted_by: Override | Pin | None = None
    """What a user's override wants is not asked for its gain."""
    ends: tuple[Refusal, ...] = ()
    """Where a region ends for a reason."""

    @property
    def rule(self) -> Rule:
        return self.found.rule

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        return self.found.nodes


Ops = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One pattern of one rule."""

    rule: Rule
    number: int
    above: tuple[Ops, ...] = ()
    """For each operand of the root that must be computed, what may compute it: a quick test."""
    is_product: bool = False


@dataclass(slots=True)
class Index:
    """Patterns by the operators and kinds that their root may be."""

    by_op: dict[tuple[str, str], list[Entry]] = field(default_factory=dict)
    by_kind: dict[str, list[Entry]] = field(default_factory=dict)
    everywhere: list[Entry] = field(default_factory=list)

    @staticmethod
    def of(rules: Iterable[Rule]) -> Index:
        index = Index()
        for rule in sorted(rules, key=lambda r: r.name):
            for number, pattern in enumerate(rule.patterns):
                index._add(rule, number, pattern)
        return index

    def _add(self, rule: Rule, number: int, pattern: Pattern) -> None:
        if isinstance(pattern, Chain):
            entry = Entry(rule, number)
            for op in dict.fromkeys(pattern.anchor.ops):
                self.by_op.setdefault((op.domain, op.name), []).append(entry)
            for kind in dict.fromkeys(pattern.anchor.kinds):
                self.by_kind.setdefault(kind, []).append(entry)
            return
        root = pattern.nodes[pattern.output]
        if root.is_optional:
            self.everywhere.append(Entry(rule, number))
            return
        above = () if root.is_run else tuple(_above(pattern, root))
        ops = (*root.ops, OpName("Div")) if root.is_product else root.ops
        for op in dict.fromkeys(ops):
            entry = Entry(rule, number, above, root.is_product)
            self.by_op.setdefault((op.domain, op.name), []).append(entry)

    def at(self, scope: Scope, node: ir.Node) -> list[tuple[Rule, int]]:
        found = [*self.by_op.get(_op(node), ()), *self.everywhere]
        if self.by_kind:
            more = self.by_kind.get(scope.kind(node), ())
            found += [entry for entry in more if entry not in found]
        if not found:
            return []
        direct = _makers(node.inputs)
        factors: Ops | None = None
        rows = []
        for entry in found:
            makers = direct
            if entry.is_product:
                if factors is None:
                    product = product_of(scope, node)
                    factors = frozenset() if product is None else _makers(product.leaves)
                makers = factors
            if all(not makers.isdisjoint(ops) for ops in entry.above):
                rows.append((entry.rule, entry.number))
        return rows


def _above(pattern: GraphPattern, root: PatternNode) -> Iterator[Ops]:
    for operand in root.operands[: root.required]:
        asked = pattern.nodes.get(operand) if isinstance(operand, str) else None
        if asked is not None and not asked.is_optional:
            more = {("", "Div")} if asked.is_product else set()
            yield frozenset({(op.domain, op.name) for op in asked.ops} | more)


def _makers(values: Iterable[ir.Value | None]) -> Ops:
    makers = (value.producer() for value in values if value is not None)
    return frozenset(_op(maker) for maker in makers if maker is not None)


def _op(node: ir.Node) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


@dataclass(slots=True)
class Finder:
    """Candidates of one graph. What is refused on the way is noted."""

    scope: Scope
    costs: Costs
    overrides: Overrides
    replacer: Replacer
    refusals: list[Refusal] = field(default_factory=list)
    _names: dict[ir.Node, list[str]] = field(default_factory=dict)

    def at(
        self,
        rule: Rule,
        number: int,
        root: ir.Node,
        limits: Limits = NO_LIMITS,
        pin: Pin | None = None,
    ) -> Candidate | None:
        """The best that a pattern may do at a node."""
        pattern = rule.patterns[number]
        if isinstance(pattern, Chain):
            return self._chain(rule, number, pattern, root, limits, pin)
        return self._graph(rule, number, pattern, root, limits, pin)

    def pinned(self, rule: Rule, pin: Pin, nodes: frozenset[ir.Node]) -> Candidate | None:
        """What the rule does with exactly these nodes."""
        candidates: list[Candidate] = []
        told = len(self.refusals)
        for root in sorted(nodes, key=self.scope.order):
            for number in range(len(rule.patterns)):
                candidate = self.at(rule, number, root, Limits(only=nodes), pin)
                if candidate is not None and set(candidate.nodes) == nodes:
                    candidates.append(candidate)
        refused, self.refusals[told:] = self.refusals[told:], []
        if candidates:
            return min(candidates, key=lambda c: c.key)
        reason = next((r.reason for r in refused if set(r.found.nodes) == nodes), "")
        last = max(nodes, key=self.scope.order)
        found = Found(rule, 0, last, tuple(sorted(nodes, key=self.scope.order)), last.outputs[0], {})
        reason = reason or "the rule does not match exactly these nodes"
        self.refusals.append(Refusal(found, reason, pin))
        return None

    def nodes_of(self, pin: Pin) -> frozenset[ir.Node]:
        """Nodes that stand for those of the pin; none where the model lacks one of them."""
        wanted = set(pin.nodes)
        nodes = [node for node in self.scope.nodes() if wanted & set(self.names([node]))]
        return frozenset(nodes if wanted <= set(self.names(nodes)) else ())

    def names(self, nodes: Iterable[ir.Node]) -> list[str]:
        """Of the source model's nodes."""
        found: dict[str, None] = {}
        for node in nodes:
            if node not in self._names:
                self._names[node] = source_nodes(node) or [node.name or ""]
            found.update(dict.fromkeys(self._names[node]))
        return list(found)

    def _chain(
        self, rule: Rule, number: int, chain: Chain, anchor: ir.Node, limits: Limits, pin: Pin | None
    ) -> Candidate | None:
        region = grow(self.scope, chain, anchor, limits)
        if region is None:
            return None
        names = {ANCHOR: anchor.outputs[0], RESULT: region.result, **region.names}
        found = Found(rule, number, anchor, tuple(region.nodes), region.result, names)
        ends = tuple(
            Refusal(Found(rule, number, anchor, nodes, region.result, names), reason)
            for reason, nodes in region.refusals
        )
        if len(region.nodes) == 1 or region.lacks_link:
            self.refusals += ends
            return None
        return self._candidate(found, pin, ends)

    def _graph(
        self, rule: Rule, number: int, pattern: GraphPattern, root: ir.Node, limits: Limits, pin: Pin | None
    ) -> Candidate | None:
        """The best match. Noted are what an override refused and, where no match is legal, why the first is
        not."""
        candidates: list[Candidate] = []
        told = len(self.refusals)
        for match in find_matches(self.scope, pattern, rule.tolerance, root):
            if not match.nodes or not all(map(limits.allow, match.nodes)):
                continue
            found = Found(rule, number, root, match.nodes, root.outputs[0], match.values)
            reason = self._match_obstacle(rule, match, found.result)
            if reason:
                self.refusals.append(Refusal(found, reason))
                continue
            candidate = self._candidate(found, pin)
            candidates += [] if candidate is None else [candidate]
        first = () if candidates else self.refusals[told : told + 1]
        later = self.refusals[told + len(first) :]
        self.refusals[told:] = [*first, *(refusal for refusal in later if refusal.override is not None)]
        if not candidates:
            return None
        return min(candidates, key=lambda c: (c.key, sorted(map(self.scope.order, c.nodes))))

    def _match_obstacle(self, rule: Rule, match: Match, result: ir.Value) -> str:
        reason = obstacle(self.scope, match, result)
        if reason or rule.replacement is not None:
            return reason
        return next((r for node in match.nodes if (r := self.scope.obstacle(node))), "")

    def _candidate(self, found: Found, pin: Pin | None, ends: tuple[Refusal, ...] = ()) -> Candidate | None:
        rule, names = found.rule, self.names(found.nodes)
        denied = self.overrides.denied(rule.name, names)
        if denied is not None and pin is None:
            self.refusals.append(Refusal(found, f"denied at {denied.loc}", denied))
            return None
        wanted = pin or self.overrides.forced(rule.name, names)
        checked = False
        try:
            self._check_constraints(found)
            checked = True
            saved = self._saved(found)
        except Refused as refused:
            is_group = checked and rule.kernel == "group"
            self.refusals.append(Refusal(found, refused.reason, wanted, is_group))
            return None
        gain = saved.nanoseconds
        if wanted is None and (gain < 0 or (gain == 0 and rule.replacement is None)):
            reason = f"it would cost {-gain} ns more than it saves" if gain else "it would save nothing"
            self.refusals.append(Refusal(found, reason))
            return None
        depth, name = self.scope.order(found.root)
        rank = GRANULARITIES[::-1].index(rule.granularity)
        key = (wanted is None, -gain, rank, -depth, name, rule.name, found.number)
        return Candidate(found, saved, key, wanted, ends)

    def _check_constraints(self, found: Found) -> None:
        for expression in found.rule.where:
            try:
                if not expression.compute(found.values, self.scope.facts):
                    raise Refused(f"where: {expression.text}")
            except NotKnown as error:
                raise Refused(f"where: {expression.text}: {error.message}") from error

    def _saved(self, found: Found) -> Cost:
        """Raises Refused where a replacement would not be the same value."""
        apart = self.costs.apart(found.nodes)
        pattern, replacement = found.rule.patterns[found.number], found.rule.replacement
        if replacement is None:
            return apart - self._region(found)
        if not isinstance(pattern, GraphPattern):
            raise Internal(f"rule '{found.rule.name}' replaces a chain")
        draft = self.replacer.draft(Match(found.values, found.nodes), pattern, replacement)
        saved = apart - self.costs.apart(node for _, node in draft.nodes)
        self.replacer.discard(draft)
        for _, node in draft.nodes:
            self.costs.forget(node)
        return saved

    def _region(self, found: Found) -> Cost:
        """Raises Refused where the rule wants a group and none gains."""
        if found.rule.kernel == "any":
            return self.costs.region(found.nodes, found.result)
        cost = Keeping(self.scope, self.costs).region(found.nodes, found.result)
        if isinstance(cost, str):
            raise Refused(cost)
        return cost
