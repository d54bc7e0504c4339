"""Transpose with and without perm."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

CASES = [
    Case("Transpose", [f32(2, 3, 4)]),
    Case("Transpose", [f32(2, 3, 4)], {"perm": [1, 2, 0]}),
    Case("Transpose", [f32(0, 3)], {"perm": [1, 0]}),
    Case("Transpose", [np.array([[True, False, True]])], {"perm": [1, 0]}),
    Case("Transpose", [f32(5)], {"perm": [0]}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
