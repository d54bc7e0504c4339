"""LRN: odd and even windows."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32

CASES = [
    *(Case("LRN", [f32(2, 6, 3, 4)], {"size": size, "alpha": 0.01}) for size in (1, 3, 5)),
    Case("LRN", [f32(2, 6, 3, 4)], {"size": 3, "alpha": 0.2, "beta": 0.5, "bias": 2.0}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
