"""The project that the tests of this folder share."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.steps.built import FIXTURES, Built, build_net


@pytest.fixture(scope="session")
def net(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_net(tmp_path_factory.mktemp("steps") / "project")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a model and data to calibrate it with."""
    shutil.copyfile(FIXTURES / "mlp.onnx", tmp_path / "net.onnx")
    (tmp_path / "calib").mkdir()
    np.savez(
        tmp_path / "calib" / "a.npz", x=np.random.default_rng(0).standard_normal((8, 20)).astype(np.float32)
    )
    return tmp_path
