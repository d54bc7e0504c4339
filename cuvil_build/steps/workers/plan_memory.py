"""Plans the arena of a graph."""

from __future__ import annotations

import json

from cuvil_build.memory.arena import plan_arena
from cuvil_build.memory.liveness import assign_storage
from cuvil_build.memory.report import to_json
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.lowering import lowered_graph


def run(job: Job) -> None:
    graph = lowered_graph(job)
    storage = assign_storage(graph)
    plan = plan_arena(storage.blocks, graph.reference_sizes())
    job.log(f"{len(storage.blocks)} blocks, {plan.reference_arena} bytes, at least {plan.lower_bound}")
    job.outputs["plan"].write_text(json.dumps(to_json(plan, storage.blocks), indent=1) + "\n")
