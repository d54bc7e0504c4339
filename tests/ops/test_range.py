"""Range with constant operands."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check

CASES = [
    Case("Range", [np.array(1), np.array(9), np.array(3)], constants=[0, 1, 2]),
    Case("Range", [np.array(9), np.array(1), np.array(-3)], constants=[0, 1, 2]),
    Case("Range", [np.array(5), np.array(1), np.array(3)], constants=[0, 1, 2]),
    Case("Range", [np.float32(0.5), np.float32(2.0), np.float32(0.5)], constants=[0, 1, 2]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
