"""OneHot: any axis, negative and wrong indices, a depth that data decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, i64

ON = np.array([-1.0, 2.0], np.float32)


def hot(indices: np.ndarray, depth: np.ndarray, constant: bool = True, **attributes: int) -> Case:
    return Case(
        "OneHot", [indices, depth, ON], attributes, constants=[1] if constant else [], fixed=[(2, 0), (1, 0)]
    )


CASES = [
    hot(i64(0, 2, -1, 7, -8), np.array(3)),
    hot(i64(0, 2, -1), np.array(3), axis=0),
    hot(np.array([[1, 0], [2, 2]]), i64(4), axis=1),
    hot(i64(0, 2), np.array([3.0], np.float32)),
    hot(i64(0, 2), np.array([3.0], np.float32), constant=False),
    hot(i64(0, 2), i64(5), constant=False),
    hot(np.array([1.0, 3.0], np.float32), np.array(4)),
    hot(np.zeros((0,), np.int64), np.array(4)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
