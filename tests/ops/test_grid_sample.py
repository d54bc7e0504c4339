"""GridSample: modes, paddings and corners, in two and three dims."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32

X = f32(2, 2, 4, 5)
GRID = f32(2, 3, 3, 2, low=-1.6, high=1.6, seed=1)
DEEP = f32(1, 2, 3, 4, 5)
DEEP_GRID = f32(1, 2, 3, 2, 3, low=-1.4, high=1.4, seed=2)
PADDINGS = ("zeros", "border", "reflection")
SAME = [((1, 0), (0, 0))]


def sample(x: np.ndarray, grid: np.ndarray, mode: str, padding: str, corners: int) -> Case:
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    return Case("GridSample", [x, grid], attributes, fixed=[(1, grid.ndim - 1)], same_as=SAME)


CASES = [
    *(sample(X, GRID, *rest) for rest in product(("linear", "nearest", "cubic"), PADDINGS, (0, 1))),
    *(sample(DEEP, DEEP_GRID, *rest) for rest in product(("linear", "nearest"), PADDINGS, (0, 1))),
    sample(f32(1, 1, 1, 1), f32(1, 2, 2, 2), "linear", "border", 1),
    sample(X.astype(np.float64), GRID.astype(np.float64), "linear", "border", 0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)


def test_nearest_integers() -> None:
    x = np.arange(40, dtype=np.int32).reshape(2, 1, 4, 5)
    check(sample(x, GRID, "nearest", "zeros", 0), evaluator=True)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES[::4], tmp_path)
