"""Gelu with a bias, or by a cheaper curve."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cuvil_build.reference import run_reference

from .expansion_harness import check_expansion, expanded
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


def test_half_of_it_opens_the_other_half() -> None:
    """onnxruntime has it on GPUs only."""
    x, bias = f32(2, 3, 8), f32(8, seed=1)
    left, right = np.split(x + bias, 2, axis=-1)
    gate = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in right.ravel()]).reshape(right.shape)
    model = expanded(Case("BiasSplitGelu", [x, bias], domain=MICROSOFT))
    found = run_reference(model, {"x0": x, "x1": bias}).outputs["y0"]
    np.testing.assert_allclose(found, left * gate, rtol=1e-5, atol=1e-6)
