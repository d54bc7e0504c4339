"""GlobalAveragePool, GlobalLpPool and GlobalMaxPool in any rank."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, check_one, f32

NAMES = ("GlobalAveragePool", "GlobalMaxPool")
CASES = [
    *(Case(op, [f32(2, 3, 5, 4)]) for op in NAMES),
    *(Case(op, [f32(1, 4, 1, 1)]) for op in NAMES),
    *(Case(op, [f32(2, 3, 9)]) for op in NAMES),
    *(Case(op, [f32(1, 2, 3, 4, 5)]) for op in NAMES),
    *(Case(op, [f32(2, 3, 5, 4).astype(np.float64)]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (1, 2, 9), (1, 4, 1, 1), (1, 2, 3, 4, 5)])
def test_norms_of_planes_match_numpy(p: int, shape: tuple[int, ...]) -> None:
    """Neither onnxruntime nor onnx's evaluator has this operator at CU-IR's opset."""
    case = Case("GlobalLpPool", [f32(*shape)], {"p": p})
    powers = np.abs(f32(*shape).astype(np.float64)) ** p
    wanted = powers.sum(axis=tuple(range(2, len(shape))), keepdims=True) ** (1 / p)
    for free in (False, True):
        check_one(case, [wanted.astype(np.float32)], free=free, tolerance=1e-5)
