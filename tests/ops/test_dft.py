"""DFT and STFT: axes, lengths, inverses, one-sided spectra."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32, i64, reference
from .symbolic import check_symbolic

REAL, COMPLEX = f32(2, 10, 1), f32(2, 10, 2)
DEEP = f32(2, 3, 5, 2)


def transform(x: np.ndarray, length: int | None = None, axis: int | None = None, **rest: int) -> Case:
    operands = [x, None if length is None else np.array(length), None if axis is None else np.array(axis)]
    while operands[-1] is None:
        operands.pop()
    return Case("DFT", operands, rest, range(1, len(operands)), fixed=[(0, x.ndim - 1)])


CASES = [
    transform(REAL),
    transform(COMPLEX),
    transform(COMPLEX, inverse=1),
    transform(REAL, onesided=1),
    transform(f32(2, 6, 2), inverse=1, onesided=1),
    transform(f32(2, 6, 2), 11, inverse=1, onesided=1),
    transform(REAL, 7),
    transform(REAL, 16, onesided=1),
    transform(COMPLEX, 16, inverse=1),
    transform(DEEP, axis=0),
    transform(DEEP, axis=1),
    transform(DEEP, axis=-2, inverse=1),
    transform(COMPLEX.astype(np.float64)),
]
SIGNAL, WAVE = f32(2, 50, 1), f32(1, 40)
WINDOW = f32(16, low=0.1)
FRAMES = [
    Case("STFT", [SIGNAL, i64(8).reshape(()), WINDOW, i64(16).reshape(())], constants=[1, 3]),
    Case("STFT", [SIGNAL, i64(7).reshape(()), None, i64(16).reshape(())], {"onesided": 0}, [1, 3]),
    Case("STFT", [SIGNAL, i64(8).reshape(()), WINDOW], constants=[1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_the_definition(case: Case) -> None:
    check(case, evaluator=True, tolerance=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_lengths_and_axes_that_data_decides(case: Case) -> None:
    free = Case(case.op, case.inputs, case.attributes, fixed=case.fixed)
    operands = [n for n in case.constants if case.inputs[n] is not None]
    check_symbolic(free, operands, tolerance=1e-5, wanted=reference(case, evaluator=True))


@pytest.mark.parametrize("case", FRAMES, ids=str)
def test_frames(case: Case) -> None:
    fixed, wanted = [(0, 2)], reference(case, evaluator=True)
    known = Case(case.op, case.inputs, case.attributes, case.constants, fixed=fixed)
    check(known, evaluator=True, tolerance=1e-5)
    free = Case(case.op, case.inputs, case.attributes, fixed=fixed)
    check_symbolic(free, case.constants, tolerance=1e-5, wanted=wanted)


def test_compiled_kernels_match_the_reference(tmp_path: Path) -> None:
    cases = [*CASES[:10], *FRAMES]
    check_compiled(cases, tmp_path, wanted=[reference(case, evaluator=True) for case in cases])
