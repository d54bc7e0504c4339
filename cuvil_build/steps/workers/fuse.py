"""Runs the fusion rules on a graph, and holds the result against the graph that came in."""

from __future__ import annotations

import json
from collections import Counter

from cuvil_build.bundle.golden import read_golden
from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.verify import verify
from cuvil_build.cuir.weights import load_graph, save_graph
from cuvil_build.fusion.check import compare_graphs, wrong_rule
from cuvil_build.fusion.decisions import decisions_text
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.overrides import NO_OVERRIDES, Overrides, unused_warnings
from cuvil_build.fusion.picked_overrides import read_picked
from cuvil_build.fusion.review import fusion_review
from cuvil_build.fusion.rule import load_rules
from cuvil_build.fusion.source_lines import source_lines
from cuvil_build.fusion.trust import read_calibration
from cuvil_build.passes.assign_layouts import assign_layouts
from cuvil_build.passes.pipeline import BYTES, run_passes
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.tolerances import graph_tolerance


def run(job: Job) -> None:
    model = load_graph(job.inputs["graph"], job.blobs)
    rules = load_rules(job.many("rules").values())
    before = model.clone()
    for name, rewrite in run_passes(model, BYTES).rewrites:
        job.log(f"{name}: {rewrite.what}: {', '.join(rewrite.nodes)}")
    overrides = _overrides(job).on(source_lines(model))
    result = fuse_graph(model, rules, overrides, read_calibration(job.params["calibration"]))
    if job.params["strict"] and result.review:
        raise fusion_review(result.review)
    moved = assign_layouts(model, result.inference)
    verify(model)
    if job.params["every_pass"]:
        golden = read_golden(job.inputs["cases"])
        cases = [dict(case.inputs) for case in golden]
        limit = graph_tolerance(json.loads(job.inputs["reference"].read_text()))
        found = compare_graphs(before, model, cases, [dict(case.outputs) for case in golden], limit)
        if found is not None and not found.passed:
            raise wrong_rule(before, rules, cases, limit)
        job.log("no sample runs" if found is None else f"compared with the graph before: {found.describe()}")
    names = {name for node in before.graph.all_nodes() for name in source_nodes(node)}
    for line in unused_warnings(overrides, result.used_overrides, names):
        job.log(line)
    applied = Counter(decision.rule for decision in result.decisions if decision.applied)
    for rule, count in sorted(applied.items()):
        job.log(f"{rule}: {count} times")
    if result.review:
        job.log(f"{len(result.review)} decisions are for review")
    job.log(f"{len(model.functions)} functions, {moved} values with channels last")
    save_graph(model, job.outputs["graph"], job.blobs)
    job.outputs["decisions"].write_text(decisions_text(result.decisions))


def _overrides(job: Job) -> Overrides:
    file = job.inputs.get("overrides")
    return NO_OVERRIDES if file is None else read_picked(file.read_text(encoding="utf-8"))
