"""Weights in a file beside the model: an ingredient like the model itself."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from cuvil_build.api import BuildResult, Options, Project
from cuvil_build.plan import state
from tests.e2e.workshop import Workshop

CONFIG = """\
version: 1
project: external
models: {net: {source: models/net.onnx}}
targets: {x64: {use: x86_64}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models/data").mkdir(parents=True)
    kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [1, 64])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [onnx.helper.make_value_info("x", kind)],
        [onnx.helper.make_value_info("y", kind)],
        [onnx.numpy_helper.from_array(matrix(1.0), "w")],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.save(model, tmp_path / "models/net.onnx", save_as_external_data=True, location="data/net.weights")
    (tmp_path / "cuvil.yaml").write_text(CONFIG)
    return tmp_path


def matrix(scale: float) -> np.ndarray:
    return np.eye(64, dtype=np.float32) * np.float32(scale)


def build(folder: Path, workshop: Workshop, until: str = "import_model") -> BuildResult:
    project = Project.load(folder, environ=workshop.environ)
    result = project.build(until=until, options=Options(jobs=1))
    project.remember(["-C", str(folder)], result)
    return result


def is_up_to_date(folder: Path) -> bool:
    return state.up_to_date(["-C", str(folder)], dict(os.environ)) is not None


def test_an_edit_of_the_weights_is_seen_and_rebuilds(folder: Path, workshop: Workshop) -> None:
    weights = folder / "models/data/net.weights"
    assert weights.stat().st_size == 64 * 64 * 4
    first = build(folder, workshop)
    assert first.ok, first.failures
    assert is_up_to_date(folder)
    weights.write_bytes(matrix(2.0).tobytes())
    assert not is_up_to_date(folder)
    planned = Project.load(folder, environ=workshop.environ).plan(until="import_model").plan
    assert planned.resolved["fetch:net"].reason.startswith("files.beside/data/net.weights changed")
    again = build(folder, workshop)
    assert again.ran == ("fetch:net", "import_model:net")
    weights.write_bytes(matrix(1.0).tobytes())
    back = build(folder, workshop)
    assert back.ran == () and is_up_to_date(folder)


def test_a_touch_of_the_weights_rebuilds_nothing(folder: Path, workshop: Workshop) -> None:
    assert build(folder, workshop).ok
    os.utime(folder / "models/data/net.weights")
    assert is_up_to_date(folder)
    assert build(folder, workshop).ran == ()


def test_weights_that_are_gone_are_named(folder: Path, workshop: Workshop) -> None:
    assert build(folder, workshop).ok
    (folder / "models/data/net.weights").unlink()
    assert not is_up_to_date(folder)
    (failure,) = build(folder, workshop).failures
    assert failure.name == "invalid-model"
    assert failure.error.startswith("models/net.onnx: error[invalid-model]: tensor 'w': its external data")
    assert "'data/net.weights' is missing" in failure.error
