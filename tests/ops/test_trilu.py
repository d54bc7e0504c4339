"""Trilu with diagonals inside and outside of the matrix."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32
from .symbolic import check_symbolic

DIAGONALS = (-9, -2, -1, 0, 1, 3, 9)
CASES = [
    *(
        Case("Trilu", [f32(2, 4, 5), np.array(k)], {"upper": upper}, [1])
        for upper in (0, 1)
        for k in DIAGONALS
    ),
    Case("Trilu", [f32(5, 3)]),
    Case("Trilu", [f32(0, 3)]),
    Case("Trilu", [np.arange(12).reshape(3, 4)], {"upper": 0}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES[: 2 * len(DIAGONALS)], ids=str)
def test_a_diagonal_that_data_decides(case: Case) -> None:
    check_symbolic(Case(case.op, case.inputs, case.attributes), [1])
