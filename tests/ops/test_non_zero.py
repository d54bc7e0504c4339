"""NonZero: as many results as the data has elements that aren't zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32, i64

CASES = [
    Case("NonZero", [np.array([[0, 1, 0], [2, 0, 3]], np.float32)]),
    Case("NonZero", [np.array([[True, False], [True, True]])]),
    Case("NonZero", [i64(0, 0, -1, 5)]),
    Case("NonZero", [np.array([-0.0, np.nan, np.inf, 0.0], np.float32)]),
    Case("NonZero", [np.zeros((3, 4), np.int32)]),
    Case("NonZero", [np.zeros((3, 0), np.float32)]),
    Case("NonZero", [np.array([7], np.uint8)]),
    Case("NonZero", [f32(2, 3, 2, 2)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
