"""MeanVarianceNormalization over several sets of axes."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32

X = f32(2, 3, 4, 5)
CASES = [
    Case("MeanVarianceNormalization", [X]),
    Case("MeanVarianceNormalization", [X], {"axes": [0, 1, 2, 3]}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=5e-6)
