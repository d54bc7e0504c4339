"""Squeeze with and without axes."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32, i64

CASES = [
    Case("Squeeze", [f32(1, 3, 1, 2), i64(0)], constants=[1]),
    Case("Squeeze", [f32(1, 3, 1, 2), i64(-2, 0)], constants=[1]),
    Case("Squeeze", [f32(1, 1)], fixed=[(0, 0)]),
    Case("Squeeze", [f32(1, 0), i64(0)], constants=[1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
