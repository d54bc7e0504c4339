"""ScatterElements, ScatterND and TensorScatter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32, i64

REDUCTIONS = ("none", "add", "mul", "max", "min")
LINES = np.array([[0, 2, -1], [1, 1, 0]])
ROWS = np.array([[0], [3], [-1], [0]])


def elements(data: np.ndarray, indices: np.ndarray, axis: int, reduction: str = "none") -> Case:
    updates = np.random.default_rng(1).integers(-9, 9, indices.shape).astype(data.dtype)
    return Case("ScatterElements", [data, indices, updates], {"axis": axis, "reduction": reduction})


def nd(data: np.ndarray, indices: np.ndarray, reduction: str = "none") -> Case:
    shape = (*indices.shape[:-1], *data.shape[indices.shape[-1] :])
    updates = np.random.default_rng(2).integers(-9, 9, shape).astype(data.dtype)
    last = (1, indices.ndim - 1)
    return Case("ScatterND", [data, indices, updates], {"reduction": reduction}, fixed=[last])


CASES = [
    *(elements(f32(4, 3), LINES, 0, reduction) for reduction in REDUCTIONS),
    *(nd(f32(4, 3, 2), ROWS, reduction) for reduction in REDUCTIONS),
    elements(f32(4, 5), np.array([[1, 3], [0, -5], [4, 2], [0, 1]]), 1),
    elements(f32(4, 5), np.array([[1, 3]]), -1, "add"),
    elements(f32(2, 3, 4), np.array([[[1, 0, 2, 1]], [[0, 0, 1, 2]]]), 1, "add"),
    elements(i64(5, 6, 7), np.array([2, 2], np.int32), 0, "add"),
    elements(f32(3, 2), np.zeros((0, 2), np.int64), 0),
    elements(np.array([1, 2, 3], np.uint8), i64(0, 1), 0, "max"),
    nd(f32(4, 5), np.array([[[0, 1], [3, 4]], [[-1, -5], [2, 2]]])),
    nd(i64(1, 2, 3, 4), np.array([[1], [1], [3]]), "add"),
    nd(f32(2, 3, 4, 5), np.array([[1, 2], [0, 0]]), "mul"),
    nd(f32(3, 2), np.zeros((0, 1), np.int64)),
    nd(np.array([True, False, True]), np.array([[0], [1]])),
    Case("TensorScatter", [f32(2, 2, 5, 3), f32(2, 2, 2, 3, seed=1), i64(1, 3)], fixed=[(1, 2)]),
    Case("TensorScatter", [f32(2, 5, 3), f32(2, 4, 3, seed=1), i64(3, 0)], {"mode": "circular"}),
    Case("TensorScatter", [f32(2, 5, 3), f32(2, 4, 3, seed=1)], {"axis": 1}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
