"""DeformConv: groups, offset groups, masks, strides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32

X = f32(1, 4, 5, 6)
W = f32(6, 4, 3, 3, seed=1)


def offsets(groups: int, height: int, width: int, each: int = 2) -> np.ndarray:
    return f32(1, groups * 9 * each, height, width, seed=each)


CASES = [
    Case("DeformConv", [X, W, offsets(1, 3, 4)]),
    Case("DeformConv", [X, W, offsets(1, 5, 6), f32(6)], {"pads": [1, 1, 1, 1]}),
    Case("DeformConv", [X, W, offsets(2, 3, 4), f32(6), offsets(2, 3, 4, 1)], {"offset_group": 2}),
    Case("DeformConv", [X, f32(6, 2, 3, 3, seed=3), offsets(1, 3, 4)], {"group": 2}),
    Case("DeformConv", [X, W, offsets(1, 2, 2)], {"strides": [2, 2], "kernel_shape": [3, 3]}),
    Case("DeformConv", [X, W, offsets(1, 1, 2)], {"dilations": [2, 2]}),
]
CASES = [
    Case(c.op, c.inputs, c.attributes, fixed=[(0, 1), *((n, d) for n in range(1, 5) for d in range(4))])
    for c in CASES
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
