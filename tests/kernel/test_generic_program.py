"""Every nest as C against the literal interpreter, at several vector widths and with two compilers."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from cuvil_build.codegen.kernels import EmittedKernel
from cuvil_build.kernel.numbers import Numbers
from tests.kernel.harness import NARROW, WIDE, Case, compile_zig, distinct, emit, run_case
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
