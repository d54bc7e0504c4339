"""Range with constant operands."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check
from .symbolic import check_symbolic

CASES = [
    Case("Range", [np.array(1), np.array(9), np.array(3)], constants=[0, 1, 2]),
    Case("Range", [np.array(9), np.array(1), np.array(-3)], constants=[0, 1, 2]),
    Case("Range", [np.array(5), np.array(1), np.array(3)], constants=[0, 1, 2]),
    Case("Range", [np.float32(0.5), np.float32(2.0), np.float32(0.5)], constants=[0, 1, 2]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_limits_that_data_decides(case: Case) -> None:
    operands = [] if np.asarray(case.inputs[0]).dtype.kind == "f" else [0, 1, 2]
    check_symbolic(Case(case.op, case.inputs), operands)
