"""Reductions: one row each, and axes in all forms."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, i64
from .symbolic import check_symbolic

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
    Case("ReduceMean", [i64(4, -2, 9).astype(np.int32), i64(0)], constants=[1]),
    Case("ReduceMax", [np.array([[True, False], [False, False]]), i64(1)], constants=[1]),
    Case("ReduceMin", [np.array([[True, False], [True, True]]), i64(1)], constants=[1]),
    Case("ReduceSum", [X.astype(np.float64), i64(1)], constants=[1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("keepdims", (0, 1))
@pytest.mark.parametrize("axes", ([1], [-1], [0, 2], [2, -2], [0, 1, 2]), ids=str)
@pytest.mark.parametrize("op", ("ReduceSum", "ReduceMean", "ReduceLogSumExp", "ReduceMax"))
def test_axes_that_data_decides(op: str, axes: list[int], keepdims: int) -> None:
    check_symbolic(Case(op, [X, i64(*axes)], {"keepdims": keepdims}), [1])


@pytest.mark.parametrize(
    ("op", "want"),
    {
        "ReduceL2": 0,
        "ReduceLogSum": -np.inf,
        "ReduceLogSumExp": -np.inf,
        "ReduceMax": -np.inf,
        "ReduceMin": np.inf,
        "ReduceProd": 1,
        "ReduceSum": 0,
        "ReduceSumSquare": 0,
    }.items(),
)
def test_nothing_to_reduce(op: str, want: float) -> None:
    case = Case(op, [f32(2, 0, 3), i64(1)], constants=[1])
    check_symbolic(case, [], wanted=[np.full((2, 1, 3), want, np.float32)])
