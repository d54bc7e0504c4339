"""LpNormalization: both norms, and a norm of zero."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

X = f32(3, 4, 5)
ZEROS = np.concatenate([f32(2, 4), np.zeros((1, 4), np.float32)])
CASES = [
    *(Case("LpNormalization", [X], {"axis": axis, "p": p}) for axis in (0, 1, -1) for p in (1, 2)),
    *(Case("LpNormalization", [ZEROS], {"p": p}) for p in (1, 2)),
    Case("LpNormalization", [X.astype(np.float64)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
