"""com.microsoft operators that are a line of others."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.reference import run_reference

from .expansion_harness import check_expansion, expanded
from .harness import Case, f32

M = "com.microsoft"
CASES = [
    Case("Trilu", [f32(3, 4)], domain=M),
    Case("Trilu", [f32(2, 3, 4), np.array(1)], {"upper": 0}, domain=M),
    Case("GatherND", [f32(3, 4), np.array([[0, 1], [2, 3]])], domain=M, fixed=[(1, 1)]),
    Case("Range", [np.float32(1), np.float32(4)], domain=M),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case)


def test_a_bias_before_softmax() -> None:
    """onnxruntime has these two on GPUs only."""
    x, bias = f32(2, 3, 4), f32(2, 1, 4, seed=1)
    case = Case("BiasSoftmax", [x, bias], {"axis": 2, "is_inner_broadcast": 1}, domain=M)
    exps = np.exp(x + bias)
    found = run_reference(expanded(case), {"x0": x, "x1": bias}).outputs["y0"]
    np.testing.assert_allclose(found, exps / exps.sum(-1, keepdims=True), rtol=1e-5)


def test_a_bias_and_a_residual() -> None:
    x, bias, skip = f32(2, 3, 4), f32(4, seed=1), f32(2, 3, 4, seed=2)
    found = run_reference(
        expanded(Case("BiasAdd", [x, bias, skip], domain=M)), {"x0": x, "x1": bias, "x2": skip}
    )
    np.testing.assert_allclose(found.outputs["y0"], x + bias + skip, rtol=1e-6)
