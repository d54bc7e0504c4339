"""Runs the imported model on its samples with the independent reference."""

from __future__ import annotations

import json

from cuvil_build.bundle.golden import GoldenCase, write_golden
from cuvil_build.comparison import Tolerance
from cuvil_build.cuir.weights import load_graph
from cuvil_build.reference import Yardstick, trusted_runs
from cuvil_build.samples import InvalidSamples
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.cases import sample_cases

TOLERANCE = Tolerance()


def run(job: Job) -> None:
    model = load_graph(job.inputs["graph"], job.blobs)
    cases = sample_cases(job, model)
    given = bool(job.many("samples"))
    found: list[tuple[GoldenCase, Yardstick]] = []
    for case, outcome in zip(cases, trusted_runs(model, cases, TOLERANCE, job.params["engine"] == "onnx")):
        if isinstance(outcome, Yardstick):
            found.append((GoldenCase(case, outcome.outputs), outcome))
        elif given:
            raise outcome
        else:
            job.log(f"a random case that the model refuses: {outcome.message}")
    if not found:
        raise InvalidSamples(
            "the model refuses all random inputs", hint="give real ones: 'samples' of the model in cuvil.yaml"
        )
    write_golden(job.outputs["cases"], [golden for golden, _ in found])
    report = {
        "engines": sorted({y.engine for _, y in found}),
        "notes": sorted({y.note for _, y in found if y.note}),
        "tolerance": TOLERANCE.relative_to_max,
    }
    job.log(json.dumps(report))
    job.outputs["report"].write_text(json.dumps(report, indent=1) + "\n")
