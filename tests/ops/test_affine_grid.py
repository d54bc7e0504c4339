"""AffineGrid in two and three dimensions, corners aligned or not."""

from __future__ import annotations

import numpy as np
import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32, i64

FIXED = [(0, 0), (0, 1), (0, 2), (1, 0)]
ALIGN: list[dict[str, int]] = [{"align_corners": 0}, {"align_corners": 1}]
CASES = [
    *(Case("AffineGrid", [f32(2, 2, 3), i64(2, 1, 4, 5)], a, [], fixed=FIXED) for a in ALIGN),
    *(Case("AffineGrid", [f32(2, 2, 3), i64(2, 1, 4, 5)], a, [1], fixed=FIXED) for a in ALIGN),
    *(Case("AffineGrid", [f32(1, 3, 4), i64(1, 1, 2, 4, 3)], a, [1], fixed=FIXED) for a in ALIGN),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=1e-5)


def test_a_single_element_is_the_first_corner() -> None:
    case = Case("AffineGrid", [np.eye(2, 3, dtype=np.float32)[None], i64(1, 1, 1, 1)], {"align_corners": 1})
    check_expansion(case, evaluator=True, free=False)
