"""TopK: order, ties, axes, and a number that data decides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32, i64

TIES = np.array([[1, 3, 3, 1, 3, 2], [5, 5, 5, 5, 5, 5]], np.float32)


def top(x: np.ndarray, k: int, constant: bool = True, **attributes: int) -> Case:
    return Case("TopK", [x, i64(k)], attributes, constants=[1] if constant else [], outputs=2)


CASES = [
    top(TIES, 2),
    top(TIES, 4, largest=0),
    top(f32(3, 7), 3, constant=False),
    top(f32(50, low=-9, high=9), 50),
    top(f32(3, 7, 2), 5, axis=1),
    top(f32(9, 2), 1, axis=0, largest=0),
    top(f32(4, 3), 0),
    top(f32(0, 3), 2),
    top(i64(3, -7, 2**60, 3, 9), 3, axis=-1),
    top(np.array([200, 3, 255, 3], np.uint8), 2),
    top(f32(3, 9), 7, constant=False),
    top(np.random.default_rng(3).integers(0, 20, (2, 200)).astype(np.int32), 37),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
