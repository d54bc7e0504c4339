"""Runs the quantised graph, without optimisations, on the inputs that the model was run on."""

from __future__ import annotations

import json

from cuvil_build.bundle.golden import GoldenCase, read_golden, write_golden
from cuvil_build.cuir.weights import load_graph
from cuvil_build.reference import Reference
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.tolerances import TOLERANCE, tolerance_of_dtypes

LEAST_SQNR = 40.0
"""In dB, of a module against its own quantised graph."""
QUANTUM = 1


def run(job: Job) -> None:
    model = load_graph(job.inputs["graph"], job.blobs)
    reference = Reference(model, evaluator=job.params["engine"] == "onnx")
    found, engines = [], set()
    for case in read_golden(job.inputs["cases"]):
        result = reference.run(case.inputs)
        found.append(GoldenCase(case.inputs, result.outputs))
        engines.add(result.engine)
    write_golden(job.outputs["cases"], found)
    report = {
        "engines": sorted(engines),
        "notes": [],
        "tolerance": TOLERANCE.relative_to_max,
        "model_tolerance": tolerance_of_dtypes(model),
        "least_sqnr": LEAST_SQNR,
        "quantum": QUANTUM,
    }
    job.log(json.dumps(report))
    job.outputs["report"].write_text(json.dumps(report, indent=1) + "\n")
