"""Tile along axes."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32, i64
from .symbolic import check_symbolic

CASES = [
    Case("Tile", [f32(2, 3), i64(2, 3)], constants=[1]),
    Case("Tile", [f32(2, 3), i64(1, 1)], constants=[1]),
    Case("Tile", [f32(1, 3), i64(4, 0)], constants=[1]),
    Case("Tile", [f32(5), i64(3)], constants=[1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_repeats_that_data_decides(case: Case) -> None:
    check_symbolic(Case(case.op, case.inputs), [1])
