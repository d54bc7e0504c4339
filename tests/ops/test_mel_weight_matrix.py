"""MelWeightMatrix with sizes that are known and that data decides."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check
from .symbolic import check_symbolic


def matrix(bins: int, length: int, rate: int, low: float, high: float) -> Case:
    operands = [np.array(n, np.int32) for n in (bins, length, rate)]
    return Case("MelWeightMatrix", [*operands, np.float32(low), np.float32(high)], constants=range(5))


CASES = [
    matrix(8, 16, 8192, 0, 4096),
    matrix(40, 400, 16000, 20, 8000),
    matrix(20, 32, 8000, 0, 4000),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_the_definition(case: Case) -> None:
    check(case, evaluator=True, tolerance=1e-5)
    check_symbolic(Case(case.op, case.inputs), [0, 1], tolerance=1e-5)
