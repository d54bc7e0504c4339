"""Unsqueeze in all places."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, i64

CASES = [
    Case("Unsqueeze", [f32(3, 2), i64(0)], constants=[1]),
    Case("Unsqueeze", [f32(3, 2), i64(-1, 1)], constants=[1]),
    Case("Unsqueeze", [np.array(3.0, dtype=np.float32), i64(0)], constants=[1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
