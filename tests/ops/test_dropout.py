"""Dropout does nothing."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

CASES = [
    Case("Dropout", [f32(2, 3)]),
    Case("Dropout", [f32(2, 3), np.float32(0.5), np.array(False)], constants=[1, 2], outputs=2),
    Case("Dropout", [f32(2, 3), np.float32(0), np.array(True)], constants=[1, 2], outputs=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
