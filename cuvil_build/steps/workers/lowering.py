"""The lowered graph of a step's input."""

from __future__ import annotations

from pathlib import Path

from cuvil_build.cuir.weights import load_graph
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.ops.lowered_graph import LoweredGraph
from cuvil_build.passes.assign_layouts import order_of
from cuvil_build.steps.step import BlobStore, Job


def lowered_graph(job: Job) -> LoweredGraph:
    """Of the input `graph`, in the order of the model: `memory.plan` says in which one it runs."""
    return lowered_file(job.inputs["graph"], job.blobs, str(job.params["numerics"]))


def lowered_file(path: Path, blobs: BlobStore, numerics: str) -> LoweredGraph:
    """`numerics` as the precision policy has it."""
    model = load_graph(path, blobs)
    inference = infer_model(model, annotate=False)
    return lower_graph(model, inference, order_of, fast=numerics == "fast")
