"""Concat along every axis."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32, i64

CASES = [
    *(Case("Concat", [f32(2, 3, 4), f32(2, 3, 4, seed=1)], {"axis": axis}) for axis in (0, 1, 2, -1)),
    Case("Concat", [f32(2, 3), f32(2, 1), f32(2, 5)], {"axis": 1}),
    Case("Concat", [f32(2, 0), f32(2, 5)], {"axis": 1}),
    Case("Concat", [f32(2, 5)], {"axis": 0}),
    Case("Concat", [i64(1, 2), i64(3)], {"axis": -1}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
