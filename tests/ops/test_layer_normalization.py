"""LayerNormalization and RMSNormalization."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

CASES = [
    Case("LayerNormalization", [f32(2, 3, 8), f32(8, seed=1), f32(8, seed=2)]),
    Case("LayerNormalization", [f32(2, 3, 8), f32(8, seed=1)], {"epsilon": 1e-3}),
    Case("LayerNormalization", [f32(2, 3, 8), f32(3, 8, seed=1), f32(3, 8, seed=2)], {"axis": 1}),
    Case("LayerNormalization", [f32(5, 7), f32(7, seed=1), f32(7, seed=2)], {"axis": -1}, outputs=3),
    Case("LayerNormalization", [f32(0, 7), f32(7, seed=1), f32(7, seed=2)]),
    Case(
        "LayerNormalization", [f32(2, 3, 4, 5), f32(4, 5, seed=1), f32(4, 5, seed=2)], {"axis": -2}, outputs=3
    ),
    Case("LayerNormalization", [f32(2, 3, 4), f32(2, 3, 4, seed=1)], {"axis": 0}, outputs=2),
    Case("LayerNormalization", [f32(2, 8).astype(np.float64), f32(8, seed=1).astype(np.float64)]),
    Case(
        "LayerNormalization",
        [f32(2, 8).astype(np.float64), f32(8, seed=1).astype(np.float64), f32(8, seed=2).astype(np.float64)],
        outputs=3,
    ),
    Case("RMSNormalization", [f32(2, 3, 4), f32(3, 4, seed=1)], {"axis": 1}),
    Case("RMSNormalization", [f32(2, 3, 8), f32(8, seed=1)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
