"""Flatten at every axis."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32

CASES = [
    *(Case("Flatten", [f32(2, 3, 4)], {"axis": axis}) for axis in (0, 1, 2, 3, -1)),
    Case("Flatten", [f32(2, 3, 1, 1)]),
    Case("Flatten", [f32(0, 3)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
