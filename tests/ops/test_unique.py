"""Unique: sorted or in order of appearance, flat or along an axis, all four outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, i64

FLAT = np.array([2.0, 1.0, 1.0, 3.0, 4.0, 3.0, -1.0], np.float32)
ROWS = np.array([[1, 0, 0], [1, 0, 0], [2, 3, 4], [1, 0, -1]], np.float32)


def unique(x: np.ndarray, **attributes: int) -> Case:
    return Case("Unique", [x], attributes, outputs=4)


CASES = [
    unique(FLAT),
    unique(FLAT, sorted=0),
    unique(ROWS, axis=0),
    unique(ROWS, axis=0, sorted=0),
    unique(ROWS, axis=-1),
    unique(ROWS),
    unique(np.random.default_rng(5).integers(0, 9, (3, 4, 5)), axis=1),
    unique(np.random.default_rng(5).integers(0, 40, 100)),
    unique(np.random.default_rng(5).integers(0, 40, 100), sorted=0),
    unique(i64(7)),
    unique(np.zeros(0, np.int64)),
    Case("Unique", [FLAT]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
