"""Imports the source model, and holds the graph against it on sample inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from cuvil_build.comparison import Tolerance, compare
from cuvil_build.cuir.dims import DimSpec
from cuvil_build.cuir.weights import save_graph
from cuvil_build.errors import VerificationFailed
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.frontends.onnx_source import open_source
from cuvil_build.reference import Reference, ReferenceFailed
from cuvil_build.samples import Case
from cuvil_build.steps.fetch import MODEL_FILE
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.cases import sample_cases

TOLERANCE = Tolerance(1e-4)


def run(job: Job) -> None:
    path, label = job.inputs["model"] / MODEL_FILE, str(job.params["label"])
    specs = _specs(job.params["dims"])
    names: Any = job.params["outputs"]
    imported = import_onnx(path, dims=specs, outputs=names, file_label=label)
    cases = sample_cases(job, imported.model)
    try:
        _compare(job, imported.model, path, cases)
    except VerificationFailed:
        if job.params["every_pass"]:
            _find_pass(path, specs, names, label, cases)
        raise
    report = imported.report()
    job.log(json.dumps(report, indent=1))
    save_graph(imported.model, job.outputs["graph"], job.blobs)
    job.outputs["report"].write_text(json.dumps(report, indent=1) + "\n")


def _specs(rows: Any) -> dict[str, DimSpec]:
    return {
        name: DimSpec(low, high, tuple(typical), multiple)
        for name, (low, high, typical, multiple) in sorted(rows.items())
    }


def _compare(job: Job, graph: ir.Model, path: Path, cases: list[Case]) -> None:
    """The graph against the file as it came, opset and all."""
    source = Reference(open_source(path, str(job.params["label"])))
    wanted = {str(v.name) for v in graph.graph.outputs}
    imported = Reference(graph)
    compared, worst = 0, 0.0
    for case in cases:
        try:
            want = source.run(case, [n for n in source.outputs if n in wanted])
        except ReferenceFailed as error:
            if job.many("samples"):
                raise
            job.log(f"a random case that the source model refuses: {error.message}")
            continue
        found = compare(_like(want.engine, imported, graph, case), want.outputs, TOLERANCE)
        if not found.passed:
            raise VerificationFailed(f"the imported graph differs from its source: {found.describe()}")
        compared, worst = compared + 1, max(worst, found.worst)
    job.log(f"compared with the source model on {compared} cases: largest error {worst:.2g}")


def _like(engine: str, imported: Reference, graph: ir.Model, case: Case) -> Case:
    """By the engine that ran the source, where it can: where engines disagree, the import is not to blame."""
    have = imported.run(case)
    if have.engine == engine:
        return have.outputs
    try:
        return Reference(graph, evaluator=True).run(case).outputs
    except ReferenceFailed:
        return have.outputs


def _find_pass(path: Path, specs: Mapping[str, DimSpec], names: Any, label: str, cases: list[Case]) -> None:
    """Import once more and compare after every pass: the error names the pass."""

    def check(_: str, before: ir.Model, after: ir.Model) -> None:
        for case in cases:
            found = compare(
                Reference(after).run(case).outputs, Reference(before).run(case).outputs, TOLERANCE
            )
            if not found.passed:
                raise VerificationFailed(found.describe())

    import_onnx(path, dims=specs, outputs=names, file_label=label, check=check)
