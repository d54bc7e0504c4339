"""Runs the quantised graph on the inputs of the model's own run, and holds the loss to what is accepted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.bundle.golden import GoldenCase, read_golden, write_golden
from cuvil_build.cuir.locations import location_of
from cuvil_build.cuir.weights import load_graph
from cuvil_build.errors import Loc
from cuvil_build.quantize.loss import BEST_DB, DegenerateOutput, check_accept, check_outputs, loss_of_outputs
from cuvil_build.reference import Reference, ReferenceFailed
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.tolerances import TOLERANCE, tolerance_of_dtypes

LEAST_SQNR = 40.0
"""In dB, of a module against its own quantised graph."""
MARGIN = 6.0
"""What a module may be farther from the reference than another order of summation is."""
LOWEST = 20.0
"""However far right answers are apart, less than this is no answer."""
QUANTUM = 1
AT_ONCE = 64


def run(job: Job) -> None:
    params: Any = job.params
    model = load_graph(job.inputs["graph"], job.blobs)
    reference = Reference(model, evaluator=params["engine"] == "onnx")
    wanted = read_golden(job.inputs["cases"])
    found, engines = [], set()
    for case in wanted:
        result = reference.run(case.inputs)
        found.append(GoldenCase(case.inputs, result.outputs))
        engines.add(result.engine)
    _check(job, model, found, wanted)
    write_golden(job.outputs["cases"], found)
    apart = apart_db(model, found)
    least = min(LEAST_SQNR, max(apart - MARGIN, LOWEST))
    report = {
        "engines": sorted(engines),
        "notes": [] if least == LEAST_SQNR else [f"two orders of summation are {apart:.0f} dB apart"],
        "tolerance": TOLERANCE.relative_to_max,
        "model_tolerance": tolerance_of_dtypes(model),
        "least_sqnr": round(least, 1),
        "quantum": QUANTUM,
    }
    job.log(json.dumps(report))
    job.outputs["report"].write_text(json.dumps(report, indent=1) + "\n")


def _check(job: Job, model: ir.Model, found: list[GoldenCase], wanted: list[GoldenCase]) -> None:
    params: Any = job.params
    have, want = [case.outputs for case in found], [case.outputs for case in wanted]
    try:
        check_outputs(have, want)
    except DegenerateOutput as error:
        for case in found:
            place = first_not_finite(model, case.inputs)
            if place is not None:
                raise error.at(place) from None
        raise
    if params["accept"] is not None:
        job.log(check_accept(loss_of_outputs(have, want), params["accept"], params["precision"]))


def apart_db(model: ir.Model, found: Sequence[GoldenCase]) -> float:
    """SQNR of a run that adds in another order: the last bit of a sum may tip a value into the next integer,
    and layers carry that on."""
    try:
        other = Reference(model, optimised=True, floats=True)
        runs = [other.run(case.inputs).outputs for case in found]
    except ReferenceFailed:
        return BEST_DB
    losses = loss_of_outputs(runs, [case.outputs for case in found])
    return min((loss.sqnr for loss in losses.values()), default=BEST_DB)


def first_not_finite(model: ir.Model, feeds: Mapping[str, np.ndarray]) -> Loc | None:
    """The node whose result is the first, in the graph's order, with NaN or an infinity."""
    makers = {str(v.name): node for node in model.graph for v in node.outputs if v.name}
    names = list(makers)
    for start in range(0, len(names), AT_ONCE):
        chunk = names[start : start + AT_ONCE]
        try:
            values = Reference(model, values=chunk).run(feeds, chunk).outputs
        except ReferenceFailed:
            return None
        for name in chunk:
            array = np.asarray(values[name])
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return location_of(makers[name])
    return None
