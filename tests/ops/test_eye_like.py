"""EyeLike: dtypes and diagonals."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

CASES = [
    *(Case("EyeLike", [f32(4, 5)], {"k": k}) for k in (-2, 0, 1, 9)),
    Case("EyeLike", [f32(4, 2)], {"dtype": 7, "k": -1}),
    Case("EyeLike", [np.zeros((3, 3), np.int32)]),
    Case("EyeLike", [np.zeros((3, 3), np.int32)], {"dtype": 11}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
