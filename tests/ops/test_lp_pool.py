"""LpPool: norms of windows, padded with zeros."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32

X = f32(2, 3, 7, 6)
KERNEL = {"kernel_shape": [3, 2]}
CASES = [
    Case("LpPool", [X], {**KERNEL, "strides": [2, 2]}),
    Case("LpPool", [X], {**KERNEL, "p": 3, "pads": [1, 0, 1, 1]}),
    Case("LpPool", [X], {**KERNEL, "p": 1}),
    Case("LpPool", [X], {**KERNEL, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("LpPool", [X], {**KERNEL, "dilations": [2, 2]}),
    Case("LpPool", [f32(1, 2, 9)], {"kernel_shape": [3], "strides": [2]}),
    Case("LpPool", [f32(1, 1, 4, 5, 6)], {"kernel_shape": [2, 2, 2]}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)
