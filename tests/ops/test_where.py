"""Where chooses elements."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, i64

MASK = np.array([[True, False, True], [False, False, True]])

CASES = [
    Case("Where", [MASK, f32(2, 3), f32(2, 3, seed=1)]),
    Case("Where", [MASK, f32(3), f32(1, seed=1)]),
    Case("Where", [MASK[:, :1], f32(4, 1, 3), i64(1).astype(np.float32)]),
    Case("Where", [np.array(True), i64(1, 2), i64(3)]),
    Case("Where", [np.zeros((0,), dtype=bool), f32(0), f32(1)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
