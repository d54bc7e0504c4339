"""Hardmax: axes and ties."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

TIES = np.array([[1, 3, 3, 2], [0, 0, 0, 0]], np.float32)
CASES = [
    *(Case("Hardmax", [f32(3, 4, 5)], {"axis": axis}) for axis in (0, 1, -1)),
    Case("Hardmax", [TIES]),
    Case("Hardmax", [f32(4, 1)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
