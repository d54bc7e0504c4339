"""`cuvil export`: what other tools get."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from cuvil_build.cli.main import main
from cuvil_build.reference import run_reference

FIXTURES = Path(__file__).parent.parent / "fixtures"
CONFIG = """\
version: 1
project: p
models:
  net: {source: net.onnx}
precision: {fp32: {}}
targets: {x64: {use: x86_64}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    shutil.copyfile(FIXTURES / "mlp.onnx", folder / "net.onnx")
    (folder / "cuvil.yaml").write_text(CONFIG)
    return folder


@pytest.mark.parametrize("step", ["net", "fuse:net/fp32"])
def test_an_exported_graph_is_complete_and_computes_the_same(step: str, project: Path) -> None:
    out = project / f"{step.partition(':')[0]}.onnx"
    assert main(["export", step, str(out), "-C", str(project)]) == 0
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 20)).astype(np.float32)}
    have = run_reference(model, feeds).outputs
    want = run_reference(onnx.load(project / "net.onnx"), feeds).outputs
    for name, array in want.items():
        np.testing.assert_allclose(have[name], array, rtol=1e-5, atol=1e-6)


def test_a_step_without_a_graph_is_a_usage_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "fetch:net", str(project / "no.onnx"), "-C", str(project)]) == 2
    assert "leaves no graph" in capsys.readouterr().err
    assert not (project / "no.onnx").exists()
