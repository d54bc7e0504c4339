"""The sample inputs of a model, as every step that runs it sees them."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.dims import read_dims
from cuvil_build.cuir.guards import Guard
from cuvil_build.cuir.index_ranges import index_ranges
from cuvil_build.ops.infer import infer_model
from cuvil_build.samples import Case, DimRange, InputSpec, load_samples, random_samples
from cuvil_build.steps.step import Job


def sample_cases(job: Job, model: ir.Model) -> list[Case]:
    """The files `samples/…` of the step; without any, seeded random inputs within the dims' bounds."""
    dims = {
        name: DimRange(d.spec.minimum, d.spec.maximum, d.spec.typical, d.spec.multiple_of)
        for name, d in read_dims(model).items()
    }
    inputs = input_specs(model)
    files = list(job.many("samples").values())
    if files:
        return load_samples(files, inputs, dims)
    job.log("no sample files: seeded random inputs")
    guards = input_guards(model) if dims else ()
    return random_samples(inputs, dims, str(job.params["model"]), ranges=index_ranges(model), guards=guards)


def input_specs(model: ir.Model) -> list[InputSpec]:
    return [_spec(value) for value in model.graph.inputs]


def input_guards(model: ir.Model) -> tuple[Guard, ...]:
    """What the main graph asks of sizes, sorted."""
    found = infer_model(model, annotate=False).guards
    guards = {guard for node, rows in found.items() if node.graph is model.graph for guard in rows}
    return tuple(sorted(guards, key=str))


def _spec(value: ir.Value) -> InputSpec:
    assert value.name and value.dtype is not None and value.shape is not None
    shape = tuple(dim if isinstance(dim, int) else str(dim.value) for dim in value.shape)
    return value.name, value.dtype.numpy().name, shape
