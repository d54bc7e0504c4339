"""Split into equal and unequal parts."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32, i64

CASES = [
    Case("Split", [f32(6, 4)], {"num_outputs": 3}, outputs=3, fixed=[(0, 0)]),
    Case("Split", [f32(7, 4)], {"num_outputs": 3, "axis": 0}, outputs=3, fixed=[(0, 0)]),
    Case("Split", [f32(2, 6), i64(1, 5)], {"axis": 1}, [1], outputs=2),
    Case("Split", [f32(2, 6), i64(0, 4, 2)], {"axis": -1}, [1], outputs=3),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
