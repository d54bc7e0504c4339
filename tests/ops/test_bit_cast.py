"""BitCast between dtypes of one width."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check_one, f32

FLOATS = np.array([0.0, -0.0, 1.0, -2.5, np.inf, np.nan], np.float32)
PAIRS = [
    (FLOATS, 6, np.int32),
    (FLOATS, 12, np.uint32),
    (FLOATS.view(np.int32), 1, np.float32),
    (f32(3, 4).astype(np.float64), 7, np.int64),
    (np.arange(-4, 4, dtype=np.int8), 2, np.uint8),
    (np.array([1.5, -2.0], np.float16), 4, np.uint16),
    (np.array([1.5, -2.0], np.float16), 16, ml_dtypes.bfloat16),
    (np.array([1, 0, 1], np.uint8), 9, np.bool_),
]
CASES = [Case("BitCast", [array], {"to": code}) for array, code, _ in PAIRS]
WANTED = [[array.view(dtype)] for array, _, dtype in PAIRS]


@pytest.mark.parametrize(("case", "want"), list(zip(CASES, WANTED)), ids=str)
def test_keeps_the_bits(case: Case, want: list[np.ndarray]) -> None:
    for free in (False, True):
        check_one(case, want, free=free, tolerance=0)


def test_compiled_kernels_keep_the_bits(tmp_path: Path) -> None:
    cases = CASES[:-1]
    check_compiled(cases, tmp_path, wanted=WANTED[:-1])
