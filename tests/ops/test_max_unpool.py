"""MaxUnpool against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.reference import run_reference

from .expansion_harness import check_expansion, expanded
from .harness import Case, f32, i64


def positions(count: int, planes: int, size: int, seed: int = 0) -> np.ndarray:
    """Different positions, within the planes that the values belong to."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(size)[:count] + plane * size for plane in range(planes)]
    return np.concatenate(rows).astype(np.int64)


CASES = [
    Case(
        "MaxUnpool",
        [f32(1, 2, 2, 3), positions(6, 2, 24).reshape(1, 2, 2, 3)],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        same_as=[((1, 1), (0, 1)), ((1, 2), (0, 2)), ((1, 3), (0, 3))],
    ),
    Case(
        "MaxUnpool",
        [f32(2, 1, 3), positions(3, 2, 7).reshape(2, 1, 3)],
        {"kernel_shape": [3], "strides": [2]},
        same_as=[((1, 0), (0, 0)), ((1, 2), (0, 2))],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case)


def test_a_larger_shape_extends_what_the_attributes_give() -> None:
    """As ONNX's backend tests have it; onnxruntime counts positions over the larger shape."""
    x, at = f32(1, 1, 2, 2), positions(4, 1, 16).reshape(1, 1, 2, 2)
    case = Case("MaxUnpool", [x, at, i64(1, 1, 5, 6)], {"kernel_shape": [2, 2], "strides": [2, 2]}, [2])
    wanted = np.zeros(16, np.float32)
    wanted[at.reshape(-1)] = x.reshape(-1)
    found = run_reference(expanded(case), {"x0": x, "x1": at}).outputs["y0"]
    np.testing.assert_array_equal(found, np.pad(wanted.reshape(1, 1, 4, 4), ((0, 0), (0, 0), (0, 1), (0, 2))))
