"""Every nest as C against the literal interpreter, at several vector widths and with two compilers."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuvil_build.codegen.kernels import EmittedKernel
from cuvil_build.kernel.expr import Apply
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from tests.kernel.harness import (
    NARROW,
    WIDE,
    WIDEST,
    Case,
    compile_gcc,
    compile_zig,
    distinct,
    emit,
    run_case,
)
from tests.kernel.nests import CASES, axes, buffer, load, stage

Built = tuple[dict[str, EmittedKernel], ctypes.CDLL]


def _build(cases: tuple[Case, ...], numbers: Numbers, folder: Path) -> Built:
    kernels = emit(cases, numbers)
    library = compile_zig(distinct(kernels), folder)
    return {c.name: k for c, k in zip(cases, kernels)}, ctypes.CDLL(str(library))


@pytest.fixture(scope="module", params=[NARROW, WIDE, WIDEST], ids=["16-byte", "32-byte", "64-byte"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return _build(CASES, request.param, tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernel_computes_what_the_nest_says(built: Built, case: Case) -> None:
    kernels, library = built
    run_case(case, kernels[case.name], library)


@pytest.mark.parametrize(("extent", "steps"), [(24, "16 8"), (29, "16 8 4 1"), (7, "4 1"), (32, "16")])
def test_what_fills_no_whole_vector_goes_through_narrower_ones(extent: int, steps: str) -> None:
    x, y = buffer("x", [3, 40]), buffer("y", [3, 40], "output")
    value = Apply("add", (load(x, "i", "j"), load(x, "i", "j")), x.dtype)
    nest = Nest("map", axes(i=3, j=extent), (stage((), "store", y, ["i", "j"], value),))
    (kernel,) = emit((Case("sum", nest),), WIDEST)
    widths = re.findall(r"cuvil_store_f32x(\d+)\(b", kernel.spec.source)
    assert widths == [word for word in steps.split() if word != "1"]


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
