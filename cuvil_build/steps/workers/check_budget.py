"""Holds a module's needs against its target's budget."""

from __future__ import annotations

import json
import shutil

from cuvil_build.memory.budget import check_budget
from cuvil_build.steps.step import Job


def run(job: Job) -> None:
    plan = json.loads(job.inputs["plan"].read_text())
    facts = json.loads(job.inputs["facts"].read_text())
    needs = {
        "arena": None if facts["heaps"] else facts["arena_bytes"],
        "stack": facts["stack_bytes"],
        "weights": facts["weights_bytes"],
    }
    limits = job.params["limits"]
    assert isinstance(limits, dict)
    check_budget(limits, needs, plan, str(job.params["target"]))
    job.log("; ".join(f"{name}: {needs[name]} of {limits[name]} bytes" for name in sorted(limits)))
    shutil.copyfile(job.inputs["plan"], job.outputs["plan"])
