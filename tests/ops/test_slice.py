"""Slice: negative positions and steps, positions beyond the ends."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, i64
from .symbolic import check_symbolic

HUGE = 2**62


def cut(x: np.ndarray, starts: list[int], ends: list[int], *rest: list[int]) -> Case:
    operands = [np.array(v, dtype=np.int64) for v in (starts, ends, *rest)]
    return Case("Slice", [x, *operands], constants=list(range(1, len(operands) + 1)))


X = f32(6, 7)
CASES = [
    cut(X, [1], [4]),
    cut(X, [1, 2], [4, HUGE]),
    cut(X, [-3], [-1], [1]),
    cut(X, [-100], [100], [0]),
    cut(X, [1], [HUGE], [1], [2]),
    cut(X, [-1], [-HUGE], [0], [-1]),
    cut(X, [HUGE], [-HUGE], [1], [-2]),
    cut(X, [4], [1], [1], [-1]),
    cut(X, [4], [2], [1]),
    cut(X, [-1], [HUGE], [-1]),
    cut(f32(0, 3), [0], [2], [0]),
    cut(i64(5, 6, 7), [1], [2]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_positions_that_data_decides(case: Case) -> None:
    operands = list(case.constants)
    at_run_time = Case(case.op, case.inputs)
    check_symbolic(at_run_time, operands)
    with_axes = Case(case.op, case.inputs, constants=[n for n in operands if n > 2])
    check_symbolic(with_axes, [1, 2])
