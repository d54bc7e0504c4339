"""Runs the rules on a graph: rewrites to named operators first, then regions; logs each decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from cuvil_build.cuir.dims import read_dims
from cuvil_build.cuir.naming import Namer
from cuvil_build.fusion.candidates import Finder
from cuvil_build.fusion.decisions import Decision
from cuvil_build.fusion.gain import Costs
from cuvil_build.fusion.journal import Journal
from cuvil_build.fusion.overrides import NO_OVERRIDES, Override, Overrides, Pin
from cuvil_build.fusion.regions import Regions
from cuvil_build.fusion.replace import Replacer
from cuvil_build.fusion.rewrites import Rewrites
from cuvil_build.fusion.rule import Rule
from cuvil_build.fusion.scope import Scope
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference


@dataclass(frozen=True, slots=True)
class FusionResult:
    model: ir.Model
    """The model given, changed in place; its values have types."""
    inference: Inference
    decisions: tuple[Decision, ...]
    used_overrides: tuple[Override | Pin, ...]

    @property
    def review(self) -> tuple[Decision, ...]:
        """Decisions that a person should look at."""
        return tuple(decision for decision in self.decisions if decision.review)


def fuse_graph(
    model: ir.Model,
    rules: Sequence[Rule],
    overrides: Overrides = NO_OVERRIDES,
    calibration: Mapping[str, float] | None = None,
) -> FusionResult:
    """Applies the rules; their order does not matter. `calibration` has mean relative errors of the predicted
    speed-ups, by kind of anchor."""
    bits = {name: 1 << i for i, name in enumerate(sorted(r.name for r in rules))}
    journal = Journal(bits, calibration or {})
    namer = Namer(model)
    scope = Scope.of(model, infer_model(model, annotate=False))
    finder = _finder(scope, namer, overrides)
    regions = [rule for rule in rules if rule.stage == "fuse"]
    rewrites = Rewrites(finder, journal, [rule for rule in rules if rule.stage == "fold"])
    rewrites.reserved = _reserved(finder, regions)
    rewrites.run()
    Regions(_finder(scope.again(), namer, overrides), journal, regions).run(namer)
    journal.raise_blocked()
    return FusionResult(model, infer_model(model), journal.decisions(), tuple(journal.used))


def _finder(scope: Scope, namer: Namer, overrides: Overrides) -> Finder:
    return Finder(scope, Costs.of(scope, read_dims(scope.model)), overrides, Replacer(scope, namer))


def _reserved(finder: Finder, rules: Sequence[Rule]) -> frozenset[ir.Node]:
    """Nodes that are pinned to regions: no rewrite may take them away."""
    names = {rule.name for rule in rules}
    pins = [pin for pin in finder.overrides.pinned() if pin.rule in names]
    return frozenset(node for pin in pins for node in finder.nodes_of(pin))
