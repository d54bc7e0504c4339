"""Runs the imported model on its samples with the independent reference."""

from __future__ import annotations

import json
from collections.abc import Sequence

import onnx_ir as ir

from cuvil_build.bundle.golden import GoldenCase, write_golden
from cuvil_build.comparison import compare
from cuvil_build.cuir.traverse import all_nodes
from cuvil_build.cuir.weights import load_graph
from cuvil_build.reference import Reference, Yardstick, trusted_runs
from cuvil_build.samples import InvalidSamples
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.cases import sample_cases
from cuvil_build.steps.workers.nudges import nudges
from cuvil_build.steps.workers.tolerances import LARGEST, TOLERANCE, tolerance_of_dtypes

NUDGES = 8
DYNAMIC = frozenset("DynamicQuantizeLinear DynamicQuantizeLSTM DynamicQuantizeMatMul QAttention".split())
"""Operators whose integers come from the range of what they read."""


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
        "model_tolerance": model_tolerance(model, found),
    }
    job.log(json.dumps(report))
    job.outputs["report"].write_text(json.dumps(report, indent=1) + "\n")


def model_tolerance(model: ir.Model, found: Sequence[tuple[GoldenCase, Yardstick]]) -> float:
    """What the whole module is held to; each kernel by itself is held to the plain tolerance.

    Where activations are quantized by their own range, the last bit of a sum can tip a value into the next
    integer. How much that matters to the model show two runs of the reference that sum in different order,
    and runs on inputs that are one unit in the last place away. Where values are narrow floats, the
    reference rounds after every node, kernels round where they store.
    """
    tolerance = tolerance_of_dtypes(model)
    if not any(node.op_type in DYNAMIC for node in all_nodes(model)):
        return tolerance
    apart = max(y.optimised_difference for _, y in found)
    reference = Reference(model)
    moved = max(_sensitivity(reference, golden) for golden, _ in found)
    return min(max(tolerance, 2 * apart, 2 * moved), LARGEST)


def _sensitivity(reference: Reference, golden: GoldenCase) -> float:
    """The largest change of an output when every float of the input moves by its last bit."""
    worst = 0.0
    for nudged in nudges(golden.inputs, NUDGES):
        outputs = reference.run(nudged, sorted(golden.outputs)).outputs
        worst = max(worst, compare(outputs, golden.outputs, TOLERANCE).worst)
    return worst
