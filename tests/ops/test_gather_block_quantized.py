"""GatherBlockQuantized: tables of 4 bits, packed in bytes or not."""

from __future__ import annotations

import numpy as np
import pytest

from .expansion_harness import check_expansion
from .harness import Case, i64
from .test_quantize_linear import scales, u8

M = "com.microsoft"
ROWS = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1}
CASES = [
    Case("GatherBlockQuantized", [u8(5, 16), i64(4, 0, 1), scales(5, 2)], ROWS, [0, 2], domain=M),
    Case(
        "GatherBlockQuantized",
        [u8(5, 16), i64(4, 0), scales(5, 2), u8(5, 1, seed=1)],
        ROWS,
        [0, 2, 3],
        domain=M,
    ),
    Case(
        "GatherBlockQuantized",
        [u8(5, 32), np.array([[1], [4]]), scales(5, 2)],
        {**ROWS, "bits": 8},
        [0, 2],
        domain=M,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=1e-6)
