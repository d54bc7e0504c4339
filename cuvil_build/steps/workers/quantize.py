"""Quantises a graph, and says what that loses on the model's samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import onnx_ir as ir

from cuvil_build.bundle.golden import GoldenCase, read_golden
from cuvil_build.bundle.manifest import round_figures
from cuvil_build.cuir.dims import read_dims
from cuvil_build.cuir.verify import verify
from cuvil_build.cuir.weights import load_graph, save_graph
from cuvil_build.errors import NotYet
from cuvil_build.fusion.source_lines import source_lines
from cuvil_build.ops.infer import infer_model
from cuvil_build.quantize.calibrate import Calibrated, Take, calibrate, stream
from cuvil_build.quantize.calibration_data import read_files, read_function, split_batches
from cuvil_build.quantize.compensate import Compensation
from cuvil_build.quantize.convert import Converted, quantise
from cuvil_build.quantize.loss import loss_of_outputs
from cuvil_build.quantize.nodes import NodeLoss, node_losses
from cuvil_build.quantize.overflow import check_overflow
from cuvil_build.quantize.restore import Remembered, Trials, restored_layers, restoring
from cuvil_build.quantize.scheme import Policy, assign, unused_warnings
from cuvil_build.quantize.smooth import Smoothed, smooth
from cuvil_build.reference import Reference
from cuvil_build.samples import Case, DimRange
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.accept import gate_of
from cuvil_build.steps.workers.cases import input_specs

NO_CALIBRATION: Mapping[str, Any] = {"method": "minmax", "percentile": 99.99, "samples": 128, "function": ""}
REPORTED = 4
"""Samples that losses of single nodes are measured on."""
MAX_NBYTES = (1 << 31) - (1 << 20)


def run(job: Job) -> None:
    params: Any = job.params
    model = load_graph(job.inputs["graph"], job.blobs)
    original = load_graph(job.inputs["graph"], job.blobs)
    infer_model(original)
    golden = read_golden(job.inputs["cases"])
    feeds = [dict(case.inputs) for case in golden]
    policy = Policy.from_json(params["policy"])
    lines = source_lines(model)
    named = {str(node.name): found for node, found in assign(original, policy, lines).nodes.items()}
    check_overflow(original, named, feeds[:REPORTED])
    warnings: list[str] = []

    asked = params["calibration"] or NO_CALIBRATION

    @cache
    def samples() -> list[Case]:
        return _calibration_cases(job, original, asked, feeds, warnings)

    def measure(names: Sequence[str]) -> Calibrated:
        return calibrate(original, names, samples(), asked["method"], asked["percentile"])

    def values(names: Sequence[str], take: Take) -> None:
        stream(original, names, samples(), take)

    smoothed: list[Smoothed] = []
    if policy.smooth:
        smoothed = smooth(original, assign(original, policy, lines).nodes, policy.smooth, values)
        infer_model(original)
        model = original.clone()
    remembered, compensation = Remembered(measure), Compensation(values)
    converted = quantise(model, policy, remembered, lines, compensation)
    want = [case.outputs for case in golden]
    journal: list[dict[str, Any]] = []
    if params["search"] is not None:
        gate = gate_of(job, params["search"]["accept"], input_specs(original))
        trials = Trials(original, policy, remembered, lines, feeds, want, gate, compensation)
        start = gate.measure(_outputs(model, golden), want).value
        losses = [] if gate.holds(start) else node_losses(original, converted, feeds[:REPORTED], named)
        found = trials.search(converted, losses, start, params["search"]["budget"])
        journal = [*found.rows()]
        journal[-1]["layers"] = restored_layers(original, found.best.restored)
        if found.best.restored:
            policy = restoring(policy, found.best.restored)
            named = {str(node.name): p for node, p in assign(original, policy, lines).nodes.items()}
            model = original.clone()
            converted = quantise(model, policy, remembered, lines, compensation)
    job.outputs["search"].write_text("".join(json.dumps(round_report(row)) + "\n" for row in journal))
    verify(model)
    warnings += unused_warnings(converted.assigned.unused, original, lines)
    save_graph(model, job.outputs["graph"], job.blobs)
    _write_plain(job, model)
    lost = loss_of_outputs(_outputs(model, golden), want)
    data = {"outputs": {name: loss.to_json() for name, loss in sorted(lost.items())}}
    job.outputs["loss"].write_text(json.dumps(round_figures(data), indent=1) + "\n")
    rows = node_losses(original, converted, feeds[:REPORTED], named)
    report = _report(converted, rows, data, smoothed)
    job.outputs["report"].write_text(json.dumps(report, indent=1) + "\n")
    job.outputs["warnings"].write_text(json.dumps(warnings, indent=1) + "\n")
    for line in warnings:
        job.log(f"warning: {line}")
    job.log(json.dumps(data))


def _calibration_cases(
    job: Job, model: ir.Model, asked: Mapping[str, Any], feeds: Sequence[Case], warnings: list[str]
) -> list[Case]:
    inputs = input_specs(model)
    dims = {
        name: DimRange(d.spec.minimum, d.spec.maximum, d.spec.typical, d.spec.multiple_of)
        for name, d in read_dims(model).items()
    }
    limit = int(asked["samples"])
    if "function" in job.inputs:
        cases = read_function(job.inputs["function"], asked["function"], inputs, dims, limit)
    elif files := list(job.many("calibration").values()):
        cases = read_files(files, inputs, dims, limit)
    else:
        cases = list(feeds)
        if not job.params["has_samples"]:
            warnings.append(
                "ranges of activations were calibrated on RANDOM inputs: the module may be far less "
                "accurate on real ones; give 'calibrate: {data: …}', or 'samples' of the model"
            )
    return list(split_batches(cases, inputs, limit))


def _outputs(model: ir.Model, golden: Sequence[GoldenCase]) -> list[dict[str, Any]]:
    reference = Reference(model)
    return [reference.run(case.inputs, sorted(case.outputs)).outputs for case in golden]


def _write_plain(job: Job, model: ir.Model) -> None:
    """The same graph with its weights in it, for other tools."""
    nbytes = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    if nbytes > MAX_NBYTES:
        raise NotYet(f"a quantised graph with {nbytes} bytes of weights does not fit into one ONNX file")
    job.outputs["plain"].write_bytes(ir.to_proto(model).SerializeToString(deterministic=True))


def _report(
    converted: Converted, rows: Sequence[NodeLoss], outputs: Mapping[str, Any], smoothed: Sequence[Smoothed]
) -> Any:
    weights = [
        {
            "node": s.node,
            "weights": s.weights,
            "type": s.type,
            "method": s.method,
            "bytes": s.nbytes,
            "was": s.was,
            "why": s.why,
        }
        for s in converted.weights
    ]
    return round_report(
        {
            **outputs,
            "calibration_samples": converted.calibrated.samples,
            "weights": weights,
            "smoothed": [asdict(one) for one in smoothed],
            "activations": [asdict(q) for q in converted.activations],
            "narrow": list(converted.narrow),
            "nodes": [asdict(row) for row in rows],
        }
    )


def round_report(data: object) -> object:
    """Figures to four digits: what machines differ in stays out."""
    if isinstance(data, float):
        return float(f"{data:.3e}") if data - data == 0 else str(data)
    if isinstance(data, Mapping):
        return {key: round_report(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [round_report(value) for value in data]
    return data
