"""The SVE2 target under an emulator: a CPU that has it runs the module, one that has not is told so."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.errors import ModuleRefused
from cuvil_build.toolchain.runner import run_module
from tests.toolchain.planned_module import build_planned
from tests.toolchain.tiny_module import expected, rows, target

pytestmark = pytest.mark.skipif(
    not shutil.which("qemu-aarch64") and not os.environ.get("CI"), reason="no qemu-aarch64 on this machine"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_planned(target("aarch64-sve2"), tmp_path_factory.mktemp("sve2"))


@pytest.mark.parametrize("length", [16, 64])
def test_runs_at_every_length_of_vectors(folder: Path, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QEMU_CPU", f"max,sve-default-vector-length={length}")
    (outputs,) = run_module(folder, target("aarch64-sve2"), [rows(3)])
    np.testing.assert_array_equal(outputs["y"], expected(rows(3)["x"])["y"])


def test_a_cpu_without_it_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QEMU_CPU", "cortex-a57")
    with pytest.raises(ModuleRefused, match="sve2"):
        run_module(folder, target("aarch64-sve2"), [rows(1)])
