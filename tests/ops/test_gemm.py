"""Gemm with all of its attributes."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

CASES = [
    Case("Gemm", [f32(3, 4), f32(4, 5, seed=1)]),
    Case("Gemm", [f32(3, 4), f32(4, 5, seed=1), f32(5, seed=2)], constants=[1, 2]),
    Case("Gemm", [f32(4, 3), f32(4, 5, seed=1), f32(3, 1, seed=2)], {"transA": 1}),
    Case("Gemm", [f32(3, 4), f32(5, 4, seed=1), np.float32(2)], {"transB": 1, "alpha": 0.5, "beta": 0.25}),
    Case("Gemm", [f32(0, 4), f32(4, 5, seed=1), f32(5, seed=2)]),
    Case("Gemm", [f32(1, 4), f32(4, 1, seed=1)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
