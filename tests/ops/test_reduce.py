"""Reductions: one row each, and axes in all forms."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, i64

OPS = (
    "ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
).split()
X = f32(2, 3, 5, low=0.2)

CASES = [
    *(Case(op, [X, i64(1)], {"keepdims": k}, [1]) for op in OPS for k in (0, 1)),
    Case("ReduceLogSum", [X, i64(1)], constants=[1]),
    Case("ReduceSum", [X]),
    Case("ReduceSum", [X], {"keepdims": 0}),
    Case("ReduceSum", [X, i64(-1, 0)], constants=[1]),
    Case("ReduceSum", [X, i64(-1, 0)], {"keepdims": 0}, [1]),
    Case("ReduceSum", [X, np.zeros(0, dtype=np.int64)], {"noop_with_empty_axes": 1}, [1]),
    Case("ReduceSum", [f32(2, 0, 3), i64(1)], constants=[1]),
    Case("ReduceSum", [f32(3, 1), i64(1)], constants=[1]),
    Case("ReduceMax", [i64(4, -2, 9), i64(0)], constants=[1]),
    Case("ReduceProd", [i64(4, -2, 9), i64(0)], constants=[1]),
    Case("ReduceMean", [f32(1, 1, 1), i64(0, 2)], constants=[1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
