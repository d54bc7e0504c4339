"""Runs the fusion rules on a graph, and holds the result against the graph that came in."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from cuvil_build.cuir.dims import read_dims
from cuvil_build.cuir.index_ranges import index_ranges
from cuvil_build.cuir.verify import verify
from cuvil_build.cuir.weights import load_graph, save_graph
from cuvil_build.fusion.check import compare_graphs, wrong_rule
from cuvil_build.fusion.decisions import decisions_text
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import load_rules
from cuvil_build.passes.assign_layouts import assign_layouts
from cuvil_build.samples import Case, DimRange, InputSpec, load_samples, random_samples
from cuvil_build.steps.step import Job


def run(job: Job) -> None:
    model = load_graph(job.inputs["graph"], job.blobs)
    rules = load_rules(job.many("rules").values())
    before = model.clone()
    result = fuse_graph(model, rules)
    moved = assign_layouts(model, result.inference)
    verify(model)
    if job.params["every_pass"]:
        cases = _cases(job, before)
        found = compare_graphs(before, model, cases)
        if found is not None and not found.passed:
            raise wrong_rule(before, rules, cases)
        job.log("no sample runs" if found is None else f"compared with the graph before: {found.describe()}")
    applied = Counter(decision.rule for decision in result.decisions if decision.applied)
    for rule, count in sorted(applied.items()):
        job.log(f"{rule}: {count} times")
    job.log(f"{len(model.functions)} functions, {moved} values with channels last")
    save_graph(model, job.outputs["graph"], job.blobs)
    job.outputs["decisions"].write_text(decisions_text(result.decisions))


def _cases(job: Job, model: ir.Model) -> list[Case]:
    dims = {
        name: DimRange(d.spec.minimum, d.spec.maximum, d.spec.typical, d.spec.multiple_of)
        for name, d in read_dims(model).items()
    }
    inputs = [_spec(value) for value in model.graph.inputs]
    files = list(job.many("samples").values())
    if files:
        return load_samples(files, inputs, dims)
    return random_samples(inputs, dims, str(job.params["model"]), ranges=index_ranges(model))


def _spec(value: ir.Value) -> InputSpec:
    assert value.name and value.dtype is not None and value.shape is not None
    shape = tuple(dim if isinstance(dim, int) else str(dim.value) for dim in value.shape)
    return value.name, value.dtype.numpy().name, shape
