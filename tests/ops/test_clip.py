"""Clip with bounds that are constants, computed, or absent."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, i64

LOW, HIGH = np.float32(-0.5), np.float32(0.75)

CASES = [
    Case("Clip", [f32(3, 5), LOW, HIGH], constants=[1, 2]),
    Case("Clip", [f32(3, 5), LOW, HIGH]),
    Case("Clip", [f32(3, 5), None, HIGH], constants=[2]),
    Case("Clip", [f32(3, 5), LOW], constants=[1]),
    Case("Clip", [f32(3, 5)]),
    Case("Clip", [i64(-9, 0, 9), np.int64(-1), np.int64(4)], constants=[1, 2]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
