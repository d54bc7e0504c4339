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
from cuvil_build.quantize.loss import BEST_DB, DegenerateOutput, Outputs, check_outputs, loss_of_outputs
from cuvil_build.reference import Reference, ReferenceFailed
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.accept import gate_of
from cuvil_build.steps.workers.cases import input_specs
from cuvil_build.steps.workers.nudges import nudges
from cuvil_build.steps.workers.tolerances import TOLERANCE, tolerance_of_dtypes

LEAST_SQNR = 40.0
"""In dB, of a module against its own quantised graph."""
AMPLIFIES = 46.0
"""A network where two orders of summation are not so far apart amplifies its roundings."""
MARGIN = 6.0
"""dB that a module may be farther from the reference than runs that are as right are."""
LOWEST = 20.0
"""However far right answers are apart, less than this is no answer."""
QUANTUM = 1
NUDGES, NUDGED = 4, 2
"""How often the inputs of how many samples are moved by their last place."""
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
    have, want = [case.outputs for case in found], [case.outputs for case in wanted]
    _check(model, found, want)
    accepted = _accept(job, model, have, want)
    write_golden(job.outputs["cases"], found)
    apart = apart_db(model, found)
    least = LEAST_SQNR if apart >= AMPLIFIES else max(apart - MARGIN, LOWEST)
    report = {
        "engines": sorted(engines),
        "notes": [] if least == LEAST_SQNR else [f"roundings alone put outputs {apart:.0f} dB apart"],
        "tolerance": TOLERANCE.relative_to_max,
        "model_tolerance": tolerance_of_dtypes(model),
        "least_sqnr": round(least, 1),
        "quantum": QUANTUM,
        **accepted,
    }
    job.log(json.dumps(report))
    job.outputs["report"].write_text(json.dumps(report, indent=1) + "\n")


def _check(model: ir.Model, found: Sequence[GoldenCase], want: Sequence[Outputs]) -> None:
    try:
        check_outputs([case.outputs for case in found], want)
    except DegenerateOutput as error:
        for case in found:
            place = first_not_finite(model, case.inputs)
            if place is not None:
                raise error.at(place) from None
        raise


def _accept(job: Job, model: ir.Model, have: Sequence[Outputs], want: Sequence[Outputs]) -> dict[str, Any]:
    """Raises where the gate does not hold."""
    params: Any = job.params
    if params["accept"] is None:
        return {}
    gate = gate_of(job, params["accept"], input_specs(model))
    found = gate.measure(have, want)
    plain = {} if gate.function is None else {"float32": gate.function(want)}
    more = "".join(f"; the float32 model has {value:.6g}" for value in plain.values())
    job.log(gate.check(found, params["precision"], more + _searched(job)))
    figures = {"value": found.value, **plain}
    return {"accept": {"metric": gate.metric} | {k: float(f"{v:.4g}") for k, v in figures.items()}}


def _searched(job: Job) -> str:
    """What a search came to."""
    rows = [json.loads(line) for line in job.inputs["search"].read_text().splitlines()]
    if not rows:
        return ""
    *trials, end = rows
    names = ", ".join(layer["pattern"] for layer in end["layers"]) or "none"
    return f"\n  after a search of {len(trials) - 1} trials: {end['end']}; the best restores {names}"


def apart_db(model: ir.Model, found: Sequence[GoldenCase]) -> float:
    """SQNR of runs that are as right: one that adds in another order, and some whose inputs are one unit in
    the last place away. The last bit of a sum may tip a value into the next integer; layers carry that on."""
    plain = Reference(model)
    some = found[:NUDGED]
    pairs = [
        (plain.run(nudged).outputs, case.outputs) for case in some for nudged in nudges(case.inputs, NUDGES)
    ]
    try:
        other = Reference(model, optimised=True, floats=True)
        pairs += [(other.run(case.inputs).outputs, case.outputs) for case in found]
    except ReferenceFailed:
        pass
    losses = [loss for have, want in pairs for loss in loss_of_outputs([have], [want]).values()]
    return min((loss.sqnr for loss in losses), default=BEST_DB)


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
