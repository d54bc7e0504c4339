"""LogSoftmax along an axis."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32

CASES = [
    Case("LogSoftmax", [f32(2, 3).astype("float64")]),
    *(Case("LogSoftmax", [f32(2, 3, 5, low=-30.0, high=30.0)], {"axis": axis}) for axis in (0, 1, -1)),
    Case("LogSoftmax", [f32(4, 1)]),
    Case("LogSoftmax", [f32(0, 3)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
