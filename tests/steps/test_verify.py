"""Step `verify`: what is right passes with its figures; planted faults are caught and named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.bundle.golden import read_golden, write_golden
from cuvil_build.errors import VerificationFailed
from cuvil_build.samples import InvalidSamples
from tests.steps.built import Built, tree


def test_the_report_is_the_same_again(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("verify")
    job = net.again(node, tmp_path)
    for name, path in net.outputs(node).items():
        assert tree(job.outputs[name]) == tree(path)
    report = json.loads(job.outputs["report"].read_text())
    assert report["tier"] == "run" and report["runners"] == ["native"]
    assert 0 < report["error"] <= report["tolerance"] == 1e-4
    assert report["kernels"]["checked"] == 3 and report["kernels"]["unchecked"] == []
    errors = report["kernels"]["regions"]
    assert len(errors) == 3 and max(errors.values()) == report["kernels"]["error"]


def test_a_module_with_other_numbers_is_caught(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("verify")
    cases = read_golden(net.inputs(node)["cases"])
    last = cases[-1]
    bent = {name: array + 0.01 for name, array in last.outputs.items()}
    write_golden(tmp_path / "cases.safetensors", [*cases[:-1], replace(last, outputs=bent)])
    with pytest.raises(VerificationFailed, match=f"'net' under native, case {len(cases)}: "):
        net.again(node, tmp_path / "again", {"cases": tmp_path / "cases.safetensors"})


def test_a_wrong_kernel_is_named(net: Built, tmp_path: Path) -> None:
    (sources,) = (net.outputs(node)["sources"] for node in net.nodes("codegen"))
    (link,), (verify,) = net.nodes("link"), net.nodes("verify")
    kernel = min((sources / "kernels").glob("contraction_*.c"))
    wrong = kernel.read_text().replace("= cuvil_splat_f32x4(0.0f);", "= cuvil_splat_f32x4(0.25f);")
    assert wrong != kernel.read_text()
    (tmp_path / "wrong.c").write_text(wrong)
    compiled = next(n for n in net.nodes("compile") if net.inputs(n)["source"].name == kernel.name)
    job = net.again(compiled, tmp_path / "compile", {"source": tmp_path / "wrong.c"})
    linked = net.again(link, tmp_path / "link", {f"objects/{kernel.stem}": job.outputs["object"]})
    libraries = {name: linked.outputs[name] for name in ("module", "checks")}
    with pytest.raises(VerificationFailed, match=f"kernel {kernel.stem} for .* is wrong: "):
        net.again(verify, tmp_path / "verify", libraries)


def test_labels_of_an_output_that_is_none_are_named(net: Built, tmp_path: Path) -> None:
    (node,) = net.nodes("verify")
    np.savez(tmp_path / "labels.npz", labels=np.zeros(1, np.int64))
    static = {**node.static, "params": {**node.params, "labelled_output": "logit"}}
    with pytest.raises(InvalidSamples, match="labels are for output 'logit', which is none"):
        net.again(replace(node, static=static), tmp_path / "again", {"labels": tmp_path / "labels.npz"})
