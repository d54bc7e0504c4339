"""Pad in all modes."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, i64
from .symbolic import check_symbolic

X = f32(3, 5)
PADS = i64(1, 2, 0, 3)

CASES = [
    *(Case("Pad", [X, PADS], {"mode": mode}, [1]) for mode in ("constant", "edge", "wrap")),
    Case("Pad", [X, i64(1, 2, 2, 3)], {"mode": "reflect"}, [1]),
    Case("Pad", [X, i64(0, 2, 0, 0)], {"mode": "reflect"}, [1]),
    Case("Pad", [X, PADS, np.float32(7.5)], constants=[1, 2]),
    Case("Pad", [X, PADS, np.float32(7.5)], constants=[1]),
    Case("Pad", [X, i64(1, -2, 0, 0)], constants=[1]),
    Case("Pad", [X, i64(2, 1), None, i64(-1)], constants=[1, 3]),
    Case("Pad", [f32(0, 2), i64(1, 0, 1, 0)], constants=[1]),
    Case("Pad", [i64(1, 2), i64(1, 1)], constants=[1]),
    Case("Pad", [X, i64(-1, 2, 0, -3)], {"mode": "edge"}, [1]),
    Case("Pad", [X, i64(-1, 2, 1, -2)], {"mode": "reflect"}, [1]),
    Case("Pad", [X, i64(0, -2, 0, 2)], {"mode": "wrap"}, [1]),
    Case("Pad", [X, i64(0, 7, 0, 12)], {"mode": "wrap"}, [1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pads_that_data_decides(case: Case) -> None:
    operands = [n for n in case.constants if n != 2]
    check_symbolic(Case(case.op, case.inputs, case.attributes), operands)
    check_symbolic(Case(case.op, case.inputs, case.attributes, [3]), [1], free=False)
