"""NonMaxSuppression."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32, i64

RNG = np.random.default_rng(11)


def boxes(batches: int, count: int) -> np.ndarray:
    corner = RNG.uniform(0, 4, (batches, count, 2))
    return np.concatenate([corner, corner + RNG.uniform(0.2, 2, (batches, count, 2))], -1).astype(np.float32)


def suppress(shape: tuple[int, int, int], *limits: float, constant: bool = True, **attributes: int) -> Case:
    batches, _, count = shape
    scores = RNG.uniform(0, 1, shape).round(1).astype(np.float32)
    operands = [np.array([v], np.int64 if n == 0 else np.float32) for n, v in enumerate(limits)]
    constants = range(2, 2 + len(limits)) if constant else []
    fixed = [(0, 2), *((n, 0) for n in range(2, 2 + len(limits)))]
    same = [((1, 0), (0, 0)), ((1, 2), (0, 1))]
    inputs = [boxes(batches, count), scores, *operands]
    return Case("NonMaxSuppression", inputs, attributes, constants, fixed=fixed, same_as=same)


CASES = [
    suppress((1, 1, 30), 5, 0.5, 0.1),
    suppress((2, 3, 20), 20, 0.3, 0.4, constant=False),
    suppress((1, 2, 20), 4, 0.3, center_point_box=1),
    suppress((1, 2, 20), 100),
    suppress((1, 2, 20), 0, 0.5),
    suppress((1, 2, 20)),
    suppress((1, 1, 1), 3, 0.5, 2.0),
    suppress((1, 2, 0), 3, 0.5, 0.0),
    Case(
        "NonMaxSuppression",
        [f32(1, 12, 4, low=-1, high=1), f32(1, 1, 12), i64(9), np.array([0.2], np.float32)],
        fixed=[(0, 2), (2, 0), (3, 0)],
        same_as=[((1, 0), (0, 0)), ((1, 2), (0, 1))],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
