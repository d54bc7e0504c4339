"""ConvTransposeWithDynamicPads with pads that are constants."""

from __future__ import annotations

import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32, i64

M = "com.microsoft"
FIXED = [(0, 1), *((1, n) for n in range(4)), (3, 0)]
CASES = [
    Case(
        "ConvTransposeWithDynamicPads",
        [f32(1, 2, 4, 3), f32(2, 3, 3, 3), i64(0, 0, 0, 0)],
        constants=[2],
        domain=M,
        fixed=FIXED,
    ),
    Case(
        "ConvTransposeWithDynamicPads",
        [f32(1, 2, 4, 3), f32(2, 3, 3, 3), i64(1, 0, 1, 1), f32(3)],
        {"strides": [2, 2]},
        [2],
        domain=M,
        fixed=FIXED,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=1e-5)
