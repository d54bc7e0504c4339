"""A list of WebAssembly targets, from cuvil.yaml to the library that an engine takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from cuvil_build.api import Options, Project
from cuvil_build.toolchain.runner import run_module
from tests.e2e.workshop import Workshop
from tests.toolchain.tiny_module import target

PLAIN, RELAXED = "wasm32-simd128", "wasm32-relaxed-simd"
OTHER = f"module.{RELAXED}.wasm"
ROWS = [1, 5, 6, 7, 100]
CONFIG = f"""\
version: 1
project: web
models: {{net: {{source: net.onnx, dims: {{n: {{min: 1, max: 100}}}}}}}}
targets: {{web: {{use: [{PLAIN}, {RELAXED}]}}}}
"""
WEIGHTS = np.random.default_rng(3).standard_normal((20, 24)).astype(np.float32)
pytestmark = [
    pytest.mark.wasm,
    pytest.mark.skipif(
        not shutil.which("node") and not os.environ.get("CI"), reason="no node on this machine"
    ),
]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory, workshop: Workshop) -> Path:
    folder = tmp_path_factory.mktemp("web")
    kinds = [onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["n", s]) for s in WEIGHTS.shape]
    x, y = (onnx.helper.make_value_info(name, kind) for name, kind in zip("xy", kinds))
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "net", [x], [y], [onnx.numpy_helper.from_array(WEIGHTS, "w")])
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "net.onnx")
    (folder / "cuvil.yaml").write_text(CONFIG)
    result = Project.load(folder, environ=workshop.environ).build([], options=Options(jobs=2))
    assert result.ok, [failure.error for failure in result.failures]
    return folder / "build/net/fp32/web"


def inputs(rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(rows).standard_normal((rows, WEIGHTS.shape[0])).astype(np.float32)


def in_node(folder: Path, options: str) -> Any:
    """Which library runs, and its answers; or what is said instead."""
    script = f"""
    import {{ load }} from '{(folder / "net.js").as_uri()}';
    const depth = {WEIGHTS.shape[0]};
    const feeds = {json.dumps([inputs(rows).reshape(-1).tolist() for rows in ROWS])};
    try {{
      const module = await load({options});
      const answers = feeds.map((values) => {{
        const data = new Float32Array(values);
        return [...module.run({{ x: {{ data, shape: [data.length / depth, depth] }} }}).y.data];
      }});
      console.log(JSON.stringify([module.target, answers]));
    }} catch (error) {{ console.log(JSON.stringify(String(error))); }}
    """
    command = ["node", "--input-type=module", "-e", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_both_libraries_are_built_and_compute_the_same(module: Path) -> None:
    facts = json.loads((module / "manifest.json").read_text())
    assert facts["libraries"] == {RELAXED: OTHER}
    assert (module / OTHER).read_bytes() != (module / facts["library"]).read_bytes()
    for member in ("", RELAXED):
        results = run_module(module, target(PLAIN), [{"x": inputs(rows)} for rows in ROWS], cpu=member)
        for rows, outputs in zip(ROWS, results, strict=True):
            np.testing.assert_allclose(outputs["y"], inputs(rows) @ WEIGHTS, rtol=1e-4, atol=1e-5)


def test_node_runs_the_one_that_it_can_and_reads_no_other(module: Path, tmp_path: Path) -> None:
    alone = tmp_path / "web"
    shutil.copytree(module, alone)
    (alone / OTHER).unlink()
    major = int(
        subprocess.run(["node", "--version"], capture_output=True, text=True).stdout[1:].split(".")[0]
    )
    named = f"{{ target: '{PLAIN}' }}"
    for options in (named, "") if major <= 20 else (named,):  # later ones compute relaxed SIMD rightly
        chosen, answers = in_node(alone, options)
        assert chosen == PLAIN
        for rows, answer in zip(ROWS, answers, strict=True):
            wanted = (inputs(rows) @ WEIGHTS).reshape(-1)
            np.testing.assert_allclose(answer, wanted, rtol=1e-4, atol=1e-5)
    assert OTHER in in_node(alone, f"{{ target: '{RELAXED}' }}")
