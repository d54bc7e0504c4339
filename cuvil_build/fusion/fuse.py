"""Runs the rules on a graph: rewrites to named operators first, then regions; logs each decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from cuvil_build.cuir.dims import FreeDim, read_dims
from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.naming import Namer
from cuvil_build.errors import Internal
from cuvil_build.fusion.apply import extract, replace_match
from cuvil_build.fusion.decisions import Decision
from cuvil_build.fusion.expression import Expression, NotKnown
from cuvil_build.fusion.grow import Region, grow
from cuvil_build.fusion.match import Match, can_be_root, find_matches, obstacle
from cuvil_build.fusion.overrides import Deny
from cuvil_build.fusion.pattern import Chain, GraphPattern
from cuvil_build.fusion.rule import Rule
from cuvil_build.fusion.scope import Scope
from cuvil_build.ops import catalog
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference

MAX_ROUNDS = 8
"""Of rewrites: what one rule leaves may be what another one looks for."""
ASSUMED_SIZE = 128
"""Of a free dim without a bound and without typical sizes, for predictions."""


@dataclass(frozen=True, slots=True)
class FusionResult:
    model: ir.Model
    """The model given, changed in place; its values have types."""
    inference: Inference
    decisions: tuple[Decision, ...]
    used_overrides: tuple[Deny, ...]


def fuse_graph(model: ir.Model, rules: Sequence[Rule], overrides: Sequence[Deny] = ()) -> FusionResult:
    """Applies the rules, given in the order in which they claim nodes."""
    bits = {name: 1 << i for i, name in enumerate(sorted(r.name for r in rules))}
    engine = _Engine(model, rules, bits, overrides)
    engine.run()
    return FusionResult(model, infer_model(model), tuple(engine.decisions), tuple(engine.used))


@dataclass
class _Engine:
    model: ir.Model
    rules: Sequence[Rule]
    bits: Mapping[str, int]
    overrides: Sequence[Deny]
    used: dict[Deny, None] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    scope: Scope = field(init=False)
    sizes: dict[str, int] = field(init=False)

    def run(self) -> None:
        self.sizes = {name: _usual_size(dim) for name, dim in read_dims(self.model).items()}
        self.namer = Namer(self.model)
        self._look({})
        for _ in range(MAX_ROUNDS):
            folds = [self._fold(rule) for rule in self.rules if rule.replacement is not None]
            if not any(folds):
                break
        else:
            raise Internal(f"rewrites don't come to an end within {MAX_ROUNDS} rounds")
        for rule in self.rules:
            if rule.replacement is None:
                self._fuse(rule)
        self.decisions = _without_repeats(self.decisions)

    def _look(self, sources: dict[ir.Node, int]) -> None:
        self.scope = Scope.of(self.model, infer_model(self.model, annotate=False), sources)

    # Rewrites --------------------------------------------------------------------------------------------

    def _fold(self, rule: Rule) -> bool:
        changed = False
        for node in self.scope.nodes():
            if node in self.scope.needed and self._fold_at(rule, node):
                changed = True
        if changed:
            self._look(self.scope.sources)
        return changed

    def _fold_at(self, rule: Rule, root: ir.Node) -> bool:
        assert rule.replacement is not None
        for pattern in rule.patterns:
            if not isinstance(pattern, GraphPattern):
                raise Internal(f"rule '{rule.name}' replaces a chain")
            if not can_be_root(pattern, root):
                continue
            for match in find_matches(self.scope, pattern, rule.tolerance, root):
                reason = self._match_obstacle(rule, match, root.outputs[0])
                reason = reason or self._replacement_obstacle(rule.replacement, match)
                self._log(rule, match.nodes, root.outputs[0], match.values, refused_by=reason)
                if not reason:
                    new = replace_match(self.scope, self.namer, match, pattern, rule.replacement)
                    for node in new:
                        self.scope.sources[node] |= self.bits[rule.name]
                    return True
        return False

    def _replacement_obstacle(self, replacement: GraphPattern, match: Match) -> str:
        dtype = self.scope.known(match.values[replacement.output]).dtype.name
        for node in replacement.nodes.values():
            op = node.ops[0]
            operator = catalog.find(op.domain, op.name)
            if operator is None or operator.lower is None:
                return f"no kernel for {op}"
            if "any" not in operator.dtypes and dtype not in operator.dtypes:
                return f"no kernel for {op} on {dtype}"
        return ""

    # Regions ---------------------------------------------------------------------------------------------

    def _fuse(self, rule: Rule) -> None:
        for node in self.scope.nodes():
            if node not in self.scope.needed:
                continue
            for pattern in rule.patterns:
                done = (
                    self._fuse_chain(rule, pattern, node)
                    if isinstance(pattern, Chain)
                    else self._fuse_match(rule, pattern, node)
                )
                if done:
                    break

    def _fuse_chain(self, rule: Rule, chain: Chain, anchor: ir.Node) -> bool:
        region = grow(self.scope, chain, anchor)
        if region is None:
            return False
        names = {"anchor": anchor.outputs[0], "result": region.result}
        reason = self._constraint(rule, tuple(region.nodes), names)
        if len(region.nodes) > 1:
            self._apply_region(rule, tuple(region.nodes), region.result, names, reason)
        if not reason:
            self._log_ends(rule, region, names)
        return len(region.nodes) > 1 and not reason

    def _fuse_match(self, rule: Rule, pattern: GraphPattern, root: ir.Node) -> bool:
        if not can_be_root(pattern, root):
            return False
        for match in find_matches(self.scope, pattern, rule.tolerance, root):
            reason = self._match_obstacle(rule, match, root.outputs[0])
            reason = reason or next((r for n in match.nodes if (r := self.scope.obstacle(n))), "")
            self._apply_region(rule, match.nodes, root.outputs[0], match.values, reason)
            if not reason:
                return True
        return False

    def _apply_region(
        self,
        rule: Rule,
        nodes: Sequence[ir.Node],
        result: ir.Value,
        names: Mapping[str, ir.Value],
        reason: str,
    ) -> None:
        if reason:
            self._log(rule, nodes, result, names, refused_by=reason)
            return
        at = len(self.decisions)
        self._log(rule, nodes, result, names)
        call = extract(self.scope, self.namer, nodes, result)
        self.scope.sources[call] |= self.bits[rule.name]
        self.decisions[at] = _named(self.decisions[at], call.op_type)

    def _log_ends(self, rule: Rule, region: Region, names: Mapping[str, ir.Value]) -> None:
        for reason, nodes in region.refusals:
            gone = [n for n in nodes if n.graph is None]
            if gone and len(region.nodes) == 1:
                continue
            self._log(rule, nodes, region.result, names, refused_by=reason)

    # Constraints and the log -----------------------------------------------------------------------------

    def _match_obstacle(self, rule: Rule, match: Match, result: ir.Value) -> str:
        return obstacle(self.scope, match, result) or self._constraint(rule, match.nodes, match.values)

    def _constraint(self, rule: Rule, nodes: Sequence[ir.Node], names: Mapping[str, ir.Value]) -> str:
        for entry in self.overrides:
            if entry.forbids(rule.name, (name for node in nodes for name in _names(node))):
                self.used[entry] = None
                return f"denied at {entry.loc}"
        for expression in rule.where:
            try:
                if not expression.compute(names, self.scope.facts):
                    return f"where: {expression.text}"
            except NotKnown as error:
                return f"where: {expression.text}: {error.message}"
        return ""

    def _trust(self, rule: Rule, names: Mapping[str, ir.Value]) -> float:
        if not isinstance(rule.trust, Expression):
            return rule.trust
        try:
            trust = float(rule.trust.compute(names, self.scope.facts))
        except NotKnown:
            return 0.0
        return min(max(trust, 0.0), 1.0)

    def _log(
        self,
        rule: Rule,
        nodes: Sequence[ir.Node],
        result: ir.Value,
        names: Mapping[str, ir.Value],
        refused_by: str = "",
    ) -> None:
        ordered = sorted(nodes, key=self.scope.order)
        claims = self.bits[rule.name]
        for node in ordered:
            claims |= self.scope.sources.get(node, 0)
        sources = dict.fromkeys(name for node in ordered for name in _names(node))
        inner = [v for node in ordered for v in node.outputs if v is not result and v.uses()]
        saved = 0 if refused_by else sum(2 * self._nbytes(v) for v in inner)
        self.decisions.append(
            Decision(
                rule.name,
                tuple(sources),
                not refused_by,
                claims,
                saved,
                self._flops_saved(rule, ordered, result) if not refused_by else 0,
                self._trust(rule, names),
                refused_by=refused_by,
            )
        )

    def _flops_saved(self, rule: Rule, nodes: Sequence[ir.Node], result: ir.Value) -> int:
        """Operations for one element each that a rewrite leaves out; a region computes what its nodes did."""
        if rule.replacement is None:
            return 0
        before = sum(self._count(v) for node in nodes for v in node.outputs)
        return max(0, before - len(rule.replacement.nodes) * self._count(result))

    def _nbytes(self, value: ir.Value) -> int:
        known = self.scope.inference.known.get(value)
        return 0 if known is None else self._count(value) * known.dtype.nbytes

    def _count(self, value: ir.Value) -> int:
        known = self.scope.inference.known.get(value)
        if known is None:
            return 0
        return max(0, _evaluated(product(known.shape), self.sizes))


def _names(node: ir.Node) -> list[str]:
    return source_nodes(node) or [node.name or ""]


def _evaluated(expr: IntExpr, sizes: Mapping[str, int]) -> int:
    return expr.evaluate({name: sizes.get(name, ASSUMED_SIZE) for name in expr.symbols()})


def _usual_size(dim: FreeDim) -> int:
    if dim.spec.typical:
        return dim.spec.typical[0]
    limit = ASSUMED_SIZE if dim.spec.maximum is None else min(dim.spec.maximum, ASSUMED_SIZE)
    return max(dim.spec.minimum, limit)


def _named(decision: Decision, function: str) -> Decision:
    return Decision(
        decision.rule,
        decision.nodes,
        decision.applied,
        decision.fusion_src,
        decision.bytes_saved,
        decision.flops_saved,
        decision.decision_trust,
        function,
        decision.refused_by,
    )


def _without_repeats(decisions: Sequence[Decision]) -> list[Decision]:
    """A refusal that several rounds met is told once."""
    return list(dict.fromkeys(decisions))
