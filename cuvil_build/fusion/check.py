"""Holds a fused graph against the graph that it was made from, and finds the rule that is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from cuvil_build.comparison import Comparison, Tolerance, compare
from cuvil_build.errors import CuvilError, NotYet, VerificationFailed
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import Rule
from cuvil_build.reference import Reference, ReferenceFailed, decide_float64
from cuvil_build.samples import Case

TOLERANCE = Tolerance(1e-4)


def compare_graphs(
    before: ir.Model,
    after: ir.Model,
    cases: Sequence[Case],
    wanted: Sequence[Case] | None = None,
    tolerance: Tolerance = TOLERANCE,
) -> Comparison | None:
    """The comparison that fails, or the worst one; None when the reference can run no case.

    `wanted` are the outputs of the graph before, where they are known already.

    A rewrite may round otherwise, which counts for much where outputs are tiny: a case that fails is
    decided in float64.
    """
    new = Reference(after)
    old = Reference(before) if wanted is None else None
    worst: Comparison | None = None
    for number, case in enumerate(cases):
        try:
            want = wanted[number] if old is None and wanted is not None else _run(old, case)
        except ReferenceFailed:
            continue
        found = compare(new.run(case).outputs, want, tolerance)
        if not found.passed:
            found = _decided(before, after, case) or found
        if not found.passed:
            return found
        if worst is None or found.worst > worst.worst:
            worst = found
    return worst


def _run(graph: Reference | None, case: Case) -> Case:
    assert graph is not None
    return graph.run(case).outputs


def _decided(before: ir.Model, after: ir.Model, case: Case) -> Comparison | None:
    try:
        return compare(decide_float64(after, case).outputs, decide_float64(before, case).outputs, TOLERANCE)
    except (ReferenceFailed, NotYet):
        return None


def wrong_rule(
    before: ir.Model, rules: Sequence[Rule], cases: Sequence[Case], tolerance: Tolerance = TOLERANCE
) -> CuvilError:
    """Applies the rules one by one to find the first that changes what the graph computes."""
    model = before.clone()
    for rule in rules:
        earlier = model.clone()
        fuse_graph(model, [rule])
        found = compare_graphs(earlier, model, cases, tolerance=tolerance)
        if found is not None and not found.passed:
            return VerificationFailed(
                f"rule '{rule.name}' changes what the model computes: {found.describe()}",
                hint="leave the rule out of fusion.rules, or correct it",
            )
    return VerificationFailed("the fused graph differs from its source, and no rule alone explains it")
