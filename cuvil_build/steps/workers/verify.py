"""Runs a module and compares it with the model that it was made from."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuvil_build.bundle.golden import GoldenCase, read_golden, write_golden
from cuvil_build.bundle.manifest import round_figures
from cuvil_build.comparison import Tolerance, compare
from cuvil_build.errors import VerificationFailed, nearest
from cuvil_build.samples import InvalidSamples, read_npz
from cuvil_build.steps.step import Job
from cuvil_build.steps.workers.check_kernels import check_kernels
from cuvil_build.steps.workers.module_folder import lay_out_module
from cuvil_build.steps.workers.tolerances import kernel_tolerance, model_tolerance
from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain.runner import run_module, runners_of, why_not_executed

Arrays = Mapping[str, np.ndarray]

GOLDEN_CASES = 2
GOLDEN_BYTES = 4 << 20
"""Larger cases are left out of the golden file."""


def run(job: Job) -> None:
    target = Target.model_validate(job.params["target"])
    facts = json.loads((job.inputs["sources"] / "module.json").read_text())
    members = [row["target"] for row in facts["members"]]
    reference = json.loads(job.inputs["reference"].read_text())
    cases = read_golden(job.inputs["cases"])
    feeds = [case.inputs for case in cases]
    tolerance, whole = kernel_tolerance(reference), model_tolerance(reference)
    with tempfile.TemporaryDirectory(prefix="cuvil-verify-") as name:
        folder = Path(name)
        lay_out_module(
            folder, facts, job.inputs["sources"], job.inputs["module"], job.inputs["weights"], target
        )
        results = {r: _run(folder, target, feeds, r) for r in runners_of(target)}
        for member in members:
            runner = runners_of(target)[0]
            results[f"{runner} ({member})"] = _run(folder, target, feeds, runner, member)
    executed = {r: outputs for r, outputs in results.items() if not isinstance(outputs, str)}
    report: dict[str, Any] = {
        "tier": "run" if executed else "built",
        "reason": "" if executed else "; ".join(str(r) for r in results.values()),
        "runners": sorted(executed),
        "cases": len(cases),
        "tolerance": whole.relative_to_max,
        "reference": reference["engines"],
        "notes": reference["notes"],
    }
    if executed:
        report["kernels"] = check_kernels(job, target, tolerance, feeds[0])
        for member in members:
            report[f"kernels, {member}"] = check_kernels(job, target, tolerance, feeds[0], member)
        report["error"] = _compare(executed, cases, whole, facts)
        report |= _accuracy(job, next(iter(executed.values())))
    report |= {key: reference[key] for key in ("accept",) if key in reference}
    if whole.least_sqnr:
        report["least_sqnr"] = whole.least_sqnr
    if "loss" in job.inputs:
        # of the quantised graph against the float32 one; the module is held to the quantised graph
        report["loss"] = json.loads(job.inputs["loss"].read_text())["outputs"]
    job.log(json.dumps(report, indent=1))
    job.outputs["report"].write_text(json.dumps(round_figures(report), indent=1, sort_keys=True) + "\n")
    write_golden(job.outputs["golden"], _small(cases))


def _run(
    folder: Path, target: Target, feeds: Sequence[Arrays], runner: str, member: str = ""
) -> list[dict[str, np.ndarray]] | str:
    """The outputs, or why it was not executed."""
    return why_not_executed(target, runner) or run_module(folder, target, feeds, runner=runner, cpu=member)


def _compare(
    executed: Mapping[str, Sequence[Arrays]],
    wanted: Sequence[GoldenCase],
    tolerance: Tolerance,
    facts: dict[str, Any],
) -> float:
    """The largest error; raises when one is too large."""
    worst = 0.0
    for runner, cases in executed.items():
        for number, (have, want) in enumerate(zip(cases, wanted, strict=True), 1):
            result = compare(have, want.outputs, tolerance)
            if not result.passed:
                raise VerificationFailed(
                    f"'{facts['model']}' under {runner}, case {number}: {result.describe()}",
                    hint="each kernel by itself is right: look at the order, memory and shapes of calls",
                )
            worst = max(worst, result.worst)
    return worst


def _accuracy(job: Job, outputs: Sequence[Arrays]) -> dict[str, Any]:
    """Share of samples whose largest entry is the labelled class."""
    if "labels" not in job.inputs:
        return {}
    arrays = read_npz(job.inputs["labels"])
    if len(arrays) != 1:
        raise InvalidSamples(f"labels need one array, the file has {len(arrays)}")
    labels = next(iter(arrays.values())).reshape(-1)
    name = str(job.params["labelled_output"])
    if name not in outputs[0]:
        raise InvalidSamples(f"labels are for output '{name}', which is none", hint=nearest(name, outputs[0]))
    scores = np.concatenate([case[name] for case in outputs])
    if len(scores) != len(labels):
        raise InvalidSamples(f"there are {len(labels)} labels for {len(scores)} samples")
    right = int((scores.reshape(len(labels), -1).argmax(axis=1) == labels).sum())
    return {"accuracy": right / len(labels), "labelled_samples": len(labels)}


def _small(cases: Sequence[GoldenCase]) -> list[GoldenCase]:
    """What may travel with the module."""
    return [
        c for c in cases if sum(a.nbytes for a in (*c.inputs.values(), *c.outputs.values())) <= GOLDEN_BYTES
    ][:GOLDEN_CASES]
