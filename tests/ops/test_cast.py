"""Cast between dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, i64

FRACTIONS = np.array([-2.7, -0.5, 0.0, 0.5, 2.7], dtype=np.float32)

CASES = [
    *(Case("Cast", [FRACTIONS], {"to": to}) for to in (1, 6, 7, 9, 11)),
    *(Case("Cast", [i64(-3, 0, 200)], {"to": to}) for to in (1, 6, 9, 11)),
    Case("Cast", [np.array([True, False])], {"to": 1}),
    Case("Cast", [np.array([1, 255], dtype=np.uint8)], {"to": 7}),
    Case("CastLike", [FRACTIONS, i64(0)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
