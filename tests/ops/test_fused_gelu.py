"""Gelu with a bias, or by a cheaper curve."""

from __future__ import annotations

import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32

MICROSOFT = "com.microsoft"
CASES = [
    Case("Gelu", [f32(3, 4)], domain=MICROSOFT),
    Case("Gelu", [f32(0, 4)], domain=MICROSOFT),
    Case("BiasGelu", [f32(2, 3, 4), f32(4, seed=1)], domain=MICROSOFT),
    Case("BiasGelu", [f32(2, 3, 4), f32(4, seed=1)], constants=[1], domain=MICROSOFT),
    Case("FastGelu", [f32(2, 3, 4), f32(4, seed=1)], domain=MICROSOFT),
    Case("FastGelu", [f32(5)], domain=MICROSOFT),
    Case("QuickGelu", [f32(2, 3, 4)], domain=MICROSOFT),
    Case("QuickGelu", [f32(2, 3, 4)], {"alpha": 1.0}, domain=MICROSOFT),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=1e-5)
