"""The source model comes into its folder with the weights beside it, and only what was pinned."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuvil_build.config.project import Model, Project
from cuvil_build.frontends.pypi import DigestMismatch
from cuvil_build.steps.fetch import STEP
from cuvil_build.steps.step import StepContext
from cuvil_build.steps.workers import fetch
from tests.steps.import_jobs import job

FIXTURES = Path(__file__).parent.parent / "fixtures"
MLP = FIXTURES / "mlp.onnx"


def context(root: Path, source: object) -> StepContext:
    model = Model.model_validate({"source": source})
    project = Project.model_construct(models={"m": model})
    return StepContext(root, project, SimpleNamespace(model="m"), SimpleNamespace())  # type: ignore[arg-type]


def test_a_path_is_copied_with_its_external_data(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    weights = tmp_path / "w.bin"
    weights.write_bytes(b"weights")
    inputs = {"model.onnx": MLP, "beside/data/w.bin": weights}
    log: list[str] = []
    params = {"kind": "path", "label": "mlp.onnx", "sha256": ""}
    fetch.run(job("fetch:m", params, inputs, {"model": tmp_path / "out"}, log))
    assert (tmp_path / "out/model.onnx").read_bytes() == MLP.read_bytes()
    assert (tmp_path / "out/data/w.bin").read_bytes() == b"weights"
    assert hashlib.sha256(MLP.read_bytes()).hexdigest() in log[0]


def test_another_digest_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    params = {"kind": "path", "label": "mlp.onnx", "sha256": "0" * 64}
    with pytest.raises(DigestMismatch, match=r"mlp\.onnx"):
        fetch.run(job("fetch:m", params, {"model.onnx": MLP}, {"model": tmp_path / "out"}, []))


def test_params_hold_no_path_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/a.onnx").write_bytes(MLP.read_bytes())
    at = context(tmp_path, "models/a.onnx")
    assert STEP.params(at) == {"kind": "path", "label": "models/a.onnx", "sha256": ""}
    assert STEP.files(at) == {"model.onnx": tmp_path / "models/a.onnx"}


def test_a_package_is_named_by_version_and_member(tmp_path: Path) -> None:
    at = context(tmp_path, {"pypi": "magika", "version": "1.0", "member": "magika/model.onnx"})
    assert STEP.files(at) == {}
    assert STEP.params(at) == {
        "kind": "pypi",
        "package": "magika",
        "version": "1.0",
        "member": "magika/model.onnx",
        "sha256": "",
    }
