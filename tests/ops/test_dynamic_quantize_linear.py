"""DynamicQuantizeLinear: scale and zero point of the tensor's range, exact integers."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

ARRAYS = [
    f32(3, 4),
    f32(3, 4, low=0.5, high=2.0),
    f32(3, 4, low=-2.0, high=-0.5),
    np.zeros((2, 3), np.float32),
    f32(1),
    np.array([0.0, 255.0, 0.5, 1.5, 2.5], np.float32),
]


@pytest.mark.parametrize("x", ARRAYS, ids=lambda a: f"{a.shape}-{a.flat[0]:.2g}")
def test_matches_onnxruntime(x: np.ndarray) -> None:
    check(Case("DynamicQuantizeLinear", [x], outputs=3))
