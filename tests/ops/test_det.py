"""Det: pivots, singular matrices, stacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32

SWAPPED = np.array([[0, 2], [3, 4]], np.float32)
SINGULAR = np.array([[1, 2], [2, 4]], np.float32)
SAME = [((0, 1), (0, 0))]
CASES = [
    Case("Det", [SWAPPED], same_as=SAME),
    Case("Det", [SINGULAR], same_as=SAME),
    Case("Det", [f32(5, 5)], same_as=SAME),
    Case("Det", [f32(2, 3, 4, 4)], same_as=[((0, 3), (0, 2))]),
    Case("Det", [f32(3, 1, 1)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
