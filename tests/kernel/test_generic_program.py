"""Every nest as C against the literal interpreter, at several vector widths and with two compilers."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuvil_build.codegen.kernels import EmittedKernel
from cuvil_build.kernel.numbers import Numbers
from tests.kernel.harness import NARROW, WIDE, Case, compile_gcc, compile_zig, distinct, emit, run_case
from tests.kernel.nests import CASES

Built = tuple[dict[str, EmittedKernel], ctypes.CDLL]


def _build(cases: tuple[Case, ...], numbers: Numbers, folder: Path) -> Built:
    kernels = emit(cases, numbers)
    library = compile_zig(distinct(kernels), folder)
    return {c.name: k for c, k in zip(cases, kernels)}, ctypes.CDLL(str(library))


@pytest.fixture(scope="module", params=[NARROW, WIDE], ids=["16-byte", "32-byte"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return _build(CASES, request.param, tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernel_computes_what_the_nest_says(built: Built, case: Case) -> None:
    kernels, library = built
    run_case(case, kernels[case.name], library)


def test_gcc_agrees(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("this CPU's machine has no gcc")
    cases = CASES[::2]
    kernels = emit(cases, WIDE)
    library = ctypes.CDLL(str(compile_gcc(distinct(kernels), tmp_path, ("-O1",))))
    for case, kernel in zip(cases, kernels):
        run_case(case, kernel, library)


def test_sanitizers_find_nothing() -> None:
    if shutil.which("gcc") is None:
        pytest.skip("this CPU's machine has no gcc")
    runtimes = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        for name in ("libasan.so", "libubsan.so")
    ]
    root = Path(__file__).resolve().parents[2]
    env = dict(os.environ) | {
        "LD_PRELOAD": " ".join(r.strip() for r in runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(root),
        "PYTHONMALLOC": "malloc",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel.sanitized"],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:6000]
    assert int(done.stdout) > 20
