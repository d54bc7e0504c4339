"""The static driver: no C library, natively and under an emulator."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.toolchain.tensor_file import read_tensors, write_tensors
from tests.codegen import module_plans as plans

MACHINES = {
    "x86_64": (plans.GCC, ()),
    "aarch64": (plans.ZIG, ("-target", "aarch64-linux-musl", "-mcpu=generic")),
}


def runner_of(machine: str) -> list[str]:
    if machine == platform.machine():
        return []
    emulator = f"qemu-{machine}"
    if not shutil.which(emulator) and not os.environ.get("CI"):
        pytest.skip(f"no {emulator} on this machine")
    return [emulator]


def drive(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.emulator
@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_driver_runs_a_module_and_says_what_is_wrong(tmp_path: Path, machine: str) -> None:
    runner = runner_of(machine)
    compiler, flags = MACHINES[machine]
    driver = plans.build_driver(plans.dynamic_plan(), tmp_path, compiler, flags)
    command = [*runner, driver, "in", "weights.safetensors", "out"]
    x = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
    write_tensors(tmp_path / "in", [x, np.zeros((8, 2, 3), np.int64)])
    done = drive([*command, "3"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ns ")
    y, again = read_tensors(tmp_path / "out")
    np.testing.assert_array_equal(y, -(x * 2 + 1))
    np.testing.assert_array_equal(again, y)

    write_tensors(tmp_path / "in", [x, np.zeros((8, 2, 4), np.int64)])
    done = drive(command, tmp_path)
    assert (done.returncode, done.stderr) == (1, "run: input 'k': dim 2 ('m') is 4, expected 3\n")
    (tmp_path / "weights.safetensors").write_bytes(b"short")
    done = drive(command, tmp_path)
    assert done.returncode == 1 and done.stderr.startswith(
        "open: weights.safetensors: is 5 bytes, expected 192"
    )
    (tmp_path / "in").write_bytes((tmp_path / "in").read_bytes()[:100])
    assert drive(command, tmp_path).stderr == "in: truncated\n"
    assert drive([*runner, driver], tmp_path).returncode == 2
