"""Reshape with 0 and -1, in all groupings."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, i64

CASES = [
    Case("Reshape", [f32(2, 3, 4), i64(6, 4)], constants=[1], fixed=[(0, 0), (0, 1), (0, 2)]),
    Case("Reshape", [f32(2, 3, 4), i64(2, 12)], constants=[1], fixed=[(0, 1), (0, 2)]),
    Case("Reshape", [f32(2, 12), i64(0, 3, 4)], constants=[1], fixed=[(0, 1)]),
    Case("Reshape", [f32(2, 3, 4), i64(0, -1)], constants=[1]),
    Case("Reshape", [f32(2, 3, 4), i64(-1)], constants=[1]),
    Case("Reshape", [f32(4, 6), i64(6, 4)], constants=[1]),
    Case("Reshape", [f32(4, 6), i64(3, -1)], constants=[1]),
    Case("Reshape", [f32(4, 6), i64(1, 4, 1, 2, 3)], constants=[1], fixed=[(0, 1)]),
    Case("Reshape", [f32(1), np.zeros(0, dtype=np.int64)], constants=[1]),
    Case("Reshape", [f32(0, 3), i64(3, 0)], {"allowzero": 1}, [1]),
    Case("Reshape", [f32(0, 3), i64(0, 3)], constants=[1]),
    Case("Reshape", [i64(1, 2, 3, 4), i64(2, 2)], constants=[1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
