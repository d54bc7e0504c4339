"""`weights: embed` of a target: one file to ship, as long as it is small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import cuvil
from cuvil_build.api import BuildResult, Options, Project
from cuvil_build.bundle.golden import read_golden
from cuvil_build.errors import WeightsTooLarge
from cuvil_build.steps.workers.codegen import LARGEST_EMBEDDED, copy_to_embed
from tests.e2e.workshop import Workshop

CONFIG = """\
version: 1
project: embedded
models: {net: {source: net.onnx}}
targets:
  x64: {use: x86_64, weights: embed}
  pi: {use: aarch64-neon, weights: embed}
  web: {use: wasm32-simd128, weights: embed}
  plain: {use: x86_64}
"""


def project(folder: Path, width: int) -> Path:
    """One product with a square matrix."""
    folder.mkdir()
    matrix = np.random.default_rng(width).standard_normal((width, width)).astype(np.float32)
    kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [1, width])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [onnx.helper.make_value_info("x", kind)],
        [onnx.helper.make_value_info("y", kind)],
        [onnx.numpy_helper.from_array(matrix, "w")],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "net.onnx")
    (folder / "cuvil.yaml").write_text(CONFIG)
    return folder


def build(folder: Path, workshop: Workshop, *selectors: str) -> BuildResult:
    return Project.load(folder, environ=workshop.environ).build(selectors, options=Options(jobs=2))


def manifest(module: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((module / "manifest.json").read_text())
    return data


@pytest.mark.emulator
@pytest.mark.wasm
def test_embedded_modules_are_verified_on_every_target(tmp_path: Path, workshop: Workshop) -> None:
    folder = project(tmp_path / "small", 24)
    result = build(folder, workshop)
    assert result.ok, [failure.error for failure in result.failures]
    plain = folder / "build/net/fp32/plain"
    nbytes = (plain / "weights.safetensors").stat().st_size
    assert (manifest(plain)["weights"], manifest(plain)["embedded"]) == ("weights.safetensors", False)
    for target in ("x64", "pi", "web"):
        module = plain.parent / target
        facts = manifest(module)
        assert facts["tier"] == "run"
        assert (facts["weights"], facts["embedded"], facts["weights_bytes"]) == (None, True, nbytes)
        assert not (module / "weights.safetensors").exists()
        assert "weights.safetensors" not in facts["digests"]
        grown = facts["library_bytes"] - (manifest(plain)["library_bytes"] if target == "x64" else 0)
        assert grown >= nbytes
    case = read_golden(plain / "golden.safetensors")[0]
    with cuvil.load(plain) as beside, cuvil.load(plain.parent / "x64") as inside:
        np.testing.assert_array_equal(inside.run(case.inputs)["y"], beside.run(case.inputs)["y"])


def test_the_limit_is_sixteen_mib(tmp_path: Path) -> None:
    sources, weights = tmp_path / "src", tmp_path / "weights.safetensors"
    sources.mkdir()
    with weights.open("wb") as file:
        file.truncate(LARGEST_EMBEDDED + 1)
    with pytest.raises(WeightsTooLarge):
        copy_to_embed(weights, sources, "net")
    assert not list(sources.iterdir())
    with weights.open("r+b") as file:
        file.truncate(LARGEST_EMBEDDED)
    copy_to_embed(weights, sources, "net")
    assert (sources / "weights.safetensors").stat().st_size == 16 << 20


def test_large_weights_are_refused_before_any_compiler_sees_them(tmp_path: Path, workshop: Workshop) -> None:
    folder = project(tmp_path / "large", 2100)
    result = build(folder, workshop, "target:x64")
    (failure,) = result.failures
    assert failure.name == "weights-too-large"
    assert failure.error == (
        "error[weights-too-large]: the weights of 'net' have 16.8 MiB; up to 16 MiB can be embedded\n"
        "  hint: 'weights: file' of the target keeps them beside the library"
    )
    assert not any(step.startswith("compile:") for step in result.ran)
    assert not (folder / "build").exists()
