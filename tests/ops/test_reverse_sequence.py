"""ReverseSequence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, f32, i64

CASES = [
    Case("ReverseSequence", [f32(4, 3), i64(4, 1, 2)]),
    Case("ReverseSequence", [f32(3, 4), i64(1, 3, 4)], {"batch_axis": 0, "time_axis": 1}),
    Case("ReverseSequence", [f32(4, 3, 2), i64(2, 2, 0)]),
    Case("ReverseSequence", [np.arange(6).reshape(3, 2), i64(3, 2)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
