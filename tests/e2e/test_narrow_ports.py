"""A model whose inputs and outputs have every dtype that numpy lacks, on every kind of machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import cuvil
from cuvil_build.api import Options, Project
from cuvil_build.cuir.dtypes import DTYPES

CONFIG = """\
version: 1
project: narrow
models:
  narrow: {source: narrow.onnx, dims: {n: {min: 1, max: 9, typical: [5]}}}
targets: {here: {use: x86_64}, web: {use: wasm32-simd128}, pi: {use: aarch64-neon}}
"""
PORTS = sorted(n for n, d in DTYPES.items() if d.is_stored_only and n != "float8e8m0")
WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4) / 8


def code_of(name: str) -> int:
    return int(getattr(TensorProto, name.upper()))


def make(path: Path) -> None:
    """Each port goes through float16 to every other one; the odd row length leaves bytes half full."""
    nodes, inputs, outputs = [], [], []
    for number, name in enumerate(PORTS):
        other = PORTS[(number + 1) % len(PORTS)]
        inputs.append(helper.make_tensor_value_info(f"x_{name}", code_of(name), ["n", 3]))
        outputs.append(helper.make_tensor_value_info(f"y_{other}", code_of(other), ["n", 3]))
        nodes.append(helper.make_node("Cast", [f"x_{name}"], [f"h_{name}"], to=TensorProto.FLOAT16))
        nodes.append(helper.make_node("Abs", [f"h_{name}"], [f"a_{name}"]))
        nodes.append(helper.make_node("Cast", [f"a_{name}"], [f"y_{other}"], to=code_of(other)))
    nodes.append(helper.make_node("MatMul", ["h_float16", "w"], ["product"]))
    outputs.append(helper.make_tensor_value_info("product", TensorProto.FLOAT16, ["n", 4]))
    weights = [numpy_helper.from_array(WEIGHTS.astype(np.float16), "w")]
    graph = helper.make_graph(nodes, "narrow", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("narrow")
    make(root / "narrow.onnx")
    (root / "cuvil.yaml").write_text(CONFIG)
    result = Project.load(root, environ=dict(os.environ)).build(options=Options(jobs=1))
    assert result.ok, [failure.error for failure in result.failures]
    return root / "build/narrow/fp32/here"


@pytest.mark.wasm
@pytest.mark.skipif(not shutil.which("node") and not os.environ.get("CI"), reason="no node on this machine")
def test_every_port_is_right_where_it_runs(folder: Path) -> None:
    """The build has verified all three on random inputs; here the numbers are known."""
    rng = np.random.default_rng(1)
    feeds = {f"x_{n}": rng.integers(0, 2, (5, 3)).astype(np.float32).astype(DTYPES[n].numpy) for n in PORTS}
    with cuvil.load(folder) as module:
        outputs = module.run(feeds)
    for number, name in enumerate(PORTS):
        other = PORTS[(number + 1) % len(PORTS)]
        assert outputs[f"y_{other}"].dtype == DTYPES[other].numpy
        have, want = (np.abs(a.astype(np.float32)) for a in (outputs[f"y_{other}"], feeds[f"x_{name}"]))
        np.testing.assert_array_equal(have, want)
    product = feeds["x_float16"].astype(np.float32) @ WEIGHTS
    np.testing.assert_array_equal(outputs["product"], product.astype(np.float16))


def test_a_wrong_dtype_is_named(folder: Path) -> None:
    feeds = {f"x_{n}": np.zeros((2, 3), DTYPES[n].numpy) for n in PORTS}
    with cuvil.load(folder) as module:
        with pytest.raises(cuvil.CuvilRuntimeError, match="'x_int4': dtype is int8, expected int4"):
            module.run({**feeds, "x_int4": np.zeros((2, 3), np.int8)})
        with pytest.raises(
            cuvil.CuvilRuntimeError, match="'x_bfloat16': dtype is float16, expected bfloat16"
        ):
            module.run({**feeds, "x_bfloat16": np.zeros((2, 3), np.float16)})
        assert module.run(feeds)["y_int4"].dtype == ml_dtypes.int4
