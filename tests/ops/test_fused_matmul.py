"""FusedMatMul: transposed matrices and stacks, and a factor."""

from __future__ import annotations

import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32

M = "com.microsoft"
CASES = [
    Case("FusedMatMul", [f32(3, 4), f32(4, 5, seed=1)], domain=M),
    Case("FusedMatMul", [f32(4, 3), f32(5, 4, seed=1)], {"transA": 1, "transB": 1, "alpha": 0.5}, domain=M),
    Case("FusedMatMul", [f32(2, 4, 3), f32(2, 5, 4, seed=1)], {"transA": 1, "transB": 1}, domain=M),
    Case("FusedMatMul", [f32(3, 2, 4), f32(2, 4, 5, seed=1)], {"transBatchA": 1}, domain=M),
    Case(
        "FusedMatMul", [f32(4, 2, 6, 3), f32(2, 6, 4, 5, seed=1)], {"transBatchA": 1, "transA": 1}, domain=M
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=1e-5)
