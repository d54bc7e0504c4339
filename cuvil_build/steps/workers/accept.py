"""The gate of a policy as a step's parameters and files have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cuvil_build.quantize.accept import Gate, project_metric
from cuvil_build.samples import Case, InputSpec, load_labels, read_npz
from cuvil_build.steps.step import Job


def gate_of(job: Job, accept: Mapping[str, Any], inputs: Sequence[InputSpec]) -> Gate:
    """`inputs` are the model's: what else its samples hold are labels."""
    if not accept["file"]:
        return Gate.from_json(accept)
    metric = project_metric(job.inputs["metric"], accept["file"], accept["function"], _labels(job, inputs))
    return Gate.from_json(accept, metric)


def _labels(job: Job, inputs: Sequence[InputSpec]) -> list[Case]:
    """Of each sample, and of all in the file that the model names."""
    found = load_labels(list(job.many("samples").values()), inputs)
    return [*found, read_npz(job.inputs["labels"])] if "labels" in job.inputs else found
