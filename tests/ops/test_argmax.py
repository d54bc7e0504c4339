"""ArgMax and ArgMin, with ties."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

TIES = np.array([[1, 5, 5, 0], [2, 2, 2, 2]], dtype=np.float32)

CASES = [
    *(Case(op, [f32(3, 4, 5)], {"axis": axis}) for op in ("ArgMax", "ArgMin") for axis in (0, 1, -1)),
    *(
        Case(op, [TIES], {"axis": 1, "select_last_index": last})
        for op in ("ArgMax", "ArgMin")
        for last in (0, 1)
    ),
    Case("ArgMax", [f32(3, 4)], {"axis": 1, "keepdims": 0}),
    Case("ArgMax", [f32(3, 1)], {"axis": 1}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
