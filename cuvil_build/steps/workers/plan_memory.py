"""Plans the memory of a graph."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cuvil_build.cuir.weights import load_graph
from cuvil_build.memory.naive import measure_naive
from cuvil_build.memory.plan import plan_graph
from cuvil_build.memory.report import to_json
from cuvil_build.ops.infer import infer_model
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.lowering import lowered_graph


def run(job: Job) -> None:
    plan = plan_graph(lowered_graph(job))
    memory = plan.memory
    job.log(f"{len(plan.storage.blocks)} blocks, {len(plan.storage.in_place)} results in place")
    job.log(f"{memory.reference_arena} bytes, at least {memory.lower_bound}")
    if memory.lower_bound < plan.source_bound:
        job.log(f"items in another order: {plan.source_bound} bytes in the model's")
    data = to_json(plan, _unfused(job, plan.points[0]))
    job.outputs["plan"].write_text(json.dumps(data, indent=1) + "\n")


def _unfused(job: Job, sizes: Mapping[str, int]) -> dict[str, int]:
    """What the graph as imported would take, in words and bytes."""
    model = load_graph(job.inputs["imported"], job.blobs)
    naive = measure_naive(model, infer_model(model, annotate=False), sizes)
    return {
        "unfused, one buffer per value": naive.first_fit,
        "unfused, alive at once": naive.peak,
        "unfused, no reuse": naive.every_value,
    }
