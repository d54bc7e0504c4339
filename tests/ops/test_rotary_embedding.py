"""com.microsoft's RotaryEmbedding: both layouts, positions for all rows and for each."""

from __future__ import annotations

import numpy as np
import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32, i64

M = "com.microsoft"
COS, SIN = f32(9, 4), f32(9, 4, seed=1)
FIXED = [(0, 1), (0, 2), (0, 3), (2, 1), (3, 1)]
SAME = [((1, 0), (0, 0)), ((3, 0), (2, 0))]
PLACES = np.array([[0, 4, 2], [8, 1, 1]], np.int64)
CASES = [
    Case(
        "RotaryEmbedding", [f32(2, 3, 16), PLACES, COS, SIN], domain=M, fixed=[*FIXED, (1, 1)], same_as=SAME
    ),
    Case(
        "RotaryEmbedding",
        [f32(2, 3, 16), i64(5), COS, SIN],
        {"interleaved": 1},
        domain=M,
        fixed=[*FIXED, (1, 0)],
        same_as=SAME[1:],
    ),
    Case(
        "RotaryEmbedding",
        [f32(2, 2, 3, 8), PLACES, COS, SIN],
        {"interleaved": 1},
        domain=M,
        fixed=[*FIXED, (1, 1)],
        same_as=SAME,
    ),
    Case(
        "RotaryEmbedding",
        [f32(2, 3, 24), PLACES, COS, SIN],
        {"num_heads": 2, "rotary_embedding_dim": 8},
        domain=M,
        fixed=[*FIXED, (1, 1)],
        same_as=SAME,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=1e-5)
