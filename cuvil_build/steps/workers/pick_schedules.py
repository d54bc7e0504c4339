"""Picks what tuning records say of the kernels of a graph."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from cuvil_build.codegen.kernels import Tuned
from cuvil_build.errors import nearest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.schedule_values import from_values, to_values
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.lowering import lowered_graph
from cuvil_build.target.descriptor import Target
from cuvil_build.tuning.pick import Picked, pick_schedules
from cuvil_build.tuning.record import Entry, Record, read_record


def run(job: Job) -> None:
    target = Target.model_validate(job.params["target"])
    records = [read_record(path, name) for name, path in job.many("records").items()]
    entries = _entries(records, str(job.params["cpu"]))
    picked = pick_schedules(entries, lowered_graph(job), Numbers.from_target(target)) if entries else Picked()
    rows = {
        key: {str(part): to_values(schedule) for part, schedule in parts.items()}
        for key, parts in picked.schedules.items()
    }
    job.outputs["schedules"].write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    warnings = [*_unknown_cpu(records, str(job.params["cpu"])), *picked.warnings]
    job.outputs["warnings"].write_text(json.dumps(warnings, indent=1) + "\n")
    for line in warnings:
        job.log(line)
    job.log(f"{sum(map(len, rows.values()))} schedules of {len(entries)} entries")


def read_picked(path: Path | None) -> Tuned:
    """What `run` wrote; of variants without this step there is nothing."""
    if path is None:
        return {}
    rows = json.loads(path.read_text())
    return {key: {int(p): from_values(v) for p, v in parts.items()} for key, parts in rows.items()}


def _entries(records: Sequence[Record], cpu: str) -> list[Entry]:
    """Of all records of this CPU; of two for one kernel, what comes later in the order of names wins."""
    found: dict[tuple[str, int], Entry] = {}
    for record in records:
        if record.cpu == cpu:
            found |= {entry.place: entry for entry in record.entries}
    return list(found.values())


def _unknown_cpu(records: Sequence[Record], cpu: str) -> list[str]:
    names = sorted({record.cpu for record in records})
    if cpu in names:
        return []
    hint = nearest(cpu, names)
    return [f"no tuning record is for '{cpu}'{f', {hint}' if hint else ''}"]
