"""Picks the overrides that are about nodes of one model, and warns of those that are about none."""

from __future__ import annotations

from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.weights import load_graph
from cuvil_build.fusion.overrides import load_overrides, unused_warnings
from cuvil_build.fusion.picked_overrides import picked, picked_text
from cuvil_build.fusion.source_lines import source_lines
from cuvil_build.steps.step import Job


def run(job: Job) -> None:
    model = load_graph(job.inputs["graph"], job.blobs)
    rules = job.params["rules"]
    assert isinstance(rules, list)
    overrides = load_overrides(job.inputs["overrides"], rules, str(job.params["file"]))
    overrides = overrides.on(source_lines(model))
    names = {name for node in model.graph.all_nodes() for name in source_nodes(node)}
    found = picked(overrides, names)
    for line in unused_warnings(overrides, found.entries, names):
        job.log(line)
    job.outputs["overrides"].write_text(picked_text(found))
