"""What is known of the fusion of a project's variants: logs, measured errors, the override file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuvil_build.api import Project
from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.traverse import all_nodes
from cuvil_build.cuir.weights import load_graph
from cuvil_build.errors import BlobMissing, StepCrashed
from cuvil_build.execute.planner import Plan
from cuvil_build.execute.records import read_record
from cuvil_build.fusion.drawing import draw
from cuvil_build.fusion.explain import (
    Explanation,
    kernel_errors,
    read_decisions,
    rule_bits,
    with_errors,
)
from cuvil_build.fusion.override_api import StepView
from cuvil_build.fusion.overrides import Overrides, load_overrides, unused_warnings
from cuvil_build.fusion.source_lines import source_lines
from cuvil_build.plan.node import Node
from cuvil_build.plan.resolve import Status

RULES = "rules/"
"""Before the name of a rule, among the files of a step."""


@dataclass(frozen=True, slots=True)
class Fused:
    """One run of the rules, and where its files lie."""

    project: Project
    node: Node
    plan: Plan

    @property
    def rules(self) -> list[str]:
        return sorted(name.removeprefix(RULES) for name in self.node.files if name.startswith(RULES))

    def explain(self) -> Explanation:
        rows = read_decisions(self._text(self.node.outputs["decisions"]))
        for verify in self.plan.dag:
            if verify.kind == "verify" and set(verify.variants) & set(self.node.variants):
                rows = with_errors(rows, self._errors(verify))
        return Explanation(
            step=self.node.id,
            variants=self.node.variants,
            rules=rule_bits(self.rules),
            decisions=tuple(rows),
        )

    def _text(self, path: str) -> str:
        try:
            return (self.project.root / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise BlobMissing(f"'{path}' is not there any more", hint="build again") from None

    def _errors(self, verify: Node) -> Mapping[frozenset[str], float]:
        """Of the variant's kernels, if its last build is of this graph."""
        if not self._is_known(verify):
            return {}
        record = read_record(self.project.layout, verify.id)
        if record is None:
            return {}
        report = json.loads(self._text(verify.outputs["report"]))
        sources = self.plan.dag[verify.inputs["sources"].node]
        facts = json.loads(self._text(sources.outputs["sources"].rstrip("/") + "/module.json"))
        return kernel_errors(facts["calls"], report.get("kernels", {}).get("regions", {}))

    def _is_known(self, node: Node) -> bool:
        found = self.plan.resolved.get(node.id)
        return found is not None and found.status is Status.KNOWN

    def view(self) -> StepView:
        """With the graph as it was before the rules ran."""
        drawing = draw(self._graph_before())
        return StepView(explanation=self.explain(), drawing=drawing, stale=not self._is_known(self.node))

    def node_lines(self) -> dict[str, tuple[str, ...]]:
        """Names of the model's nodes with their source lines."""
        model = self._graph_before()
        names = {name for node in all_nodes(model) for name in source_nodes(node) or [node.name or ""]}
        return dict.fromkeys(sorted(names), ()) | source_lines(model)

    def _graph_before(self) -> Any:
        source = self.node.inputs["graph"]
        path = self.project.root / self.plan.dag[source.node].outputs[source.output]
        return load_graph(path, self.project.store())


def gather(project: Project, selectors: Sequence[str]) -> list[Fused]:
    """One for each run of the rules that the chosen variants need, brought up to date."""
    chosen = [variant.id for variant in project.select(selectors)]
    result = project.build(chosen, until="fuse")
    failed = [failure for failure in result.failures if failure.error]
    if failed:
        raise StepCrashed(failed[0].error)
    return current(project, chosen)


def current(project: Project, chosen: Sequence[str]) -> list[Fused]:
    """As the last build left them, for variants by their ids."""
    plan = project.plan(chosen).plan
    return [Fused(project, node, plan) for node in plan.dag if node.kind == "fuse"]


def override_file(project: Project) -> Path | None:
    name = project.config.fusion.overrides
    return None if name is None else project.root / name


def known_rules(found: Sequence[Fused]) -> list[str]:
    return sorted({rule for one in found for rule in one.rules})


def stale_warnings(project: Project, found: Sequence[Fused], told: Sequence[Explanation]) -> list[str]:
    """Of entries that decided nothing in any of these runs."""
    file = override_file(project)
    overrides = Overrides() if file is None else load_overrides(file, known_rules(found), file.name)
    said = {row.override for one in told for row in one.decisions if row.override}
    used = [entry for entry in overrides.entries if str(entry) in said]
    if len(used) == len(overrides.entries):
        return []
    lines: dict[str, tuple[str, ...]] = {}
    for one in found:
        lines |= one.node_lines()
    return unused_warnings(overrides.on(lines), used, lines)
