"""MatMul with stacks, vectors and broadcasting."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

SHAPES = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((1, 1), (1, 1)),
    ((1, 17), (17, 33)),
]

CASES = [
    *(Case("MatMul", [f32(*a), f32(*b, seed=1)]) for a, b in SHAPES),
    *(Case("MatMul", [f32(*a), f32(*b, seed=1)], constants=[1]) for a, b in SHAPES[:3]),
    Case("MatMul", [np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(3, dtype=np.int32)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
