"""Expand both ways."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, i64

CASES = [
    Case("Expand", [f32(3, 1), i64(2, 3, 4)], constants=[1], fixed=[(0, 0)]),
    Case("Expand", [f32(3, 4), i64(1)], constants=[1]),
    Case("Expand", [f32(1), i64(0, 3)], constants=[1]),
    Case("Expand", [np.array(2.0, dtype=np.float32), i64(2, 2)], constants=[1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
