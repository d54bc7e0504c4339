"""Compress: elements of the flat tensor, and slices along an axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32, i64

X = f32(3, 4, 2)


def compress(x: np.ndarray, condition: list[int], **attributes: int) -> Case:
    return Case("Compress", [x, np.array(condition, bool)], attributes)


CASES = [
    compress(X, [0, 1, 1], axis=0),
    compress(X, [1, 0, 0, 1], axis=1),
    compress(X, [0, 1], axis=-1),
    compress(X, [0, 1, 0, 1, 1]),
    compress(X, [0, 0, 0], axis=0),
    compress(X, [0, 1], axis=1),
    compress(X, [], axis=1),
    compress(i64(4, 5, 6), [1, 0, 1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
