"""Integer products that are scaled back to 8 bits: every integer as onnxruntime has it."""

from __future__ import annotations

import numpy as np
import pytest

from .expansion_harness import check_expansion
from .harness import Case
from .test_quantize_linear import scales, u8

M = "com.microsoft"
S, T, Y = np.float32(0.03), np.float32(0.02), np.float32(0.5)
ZA, ZB, ZY = np.uint8(100), np.uint8(120), np.uint8(90)
FIXED = [(0, 1), *((3, n) for n in range(4)), (4, 0), (5, 0), (8, 0)]
CASES = [
    Case("QLinearMatMul", [u8(3, 4), S, ZA, u8(4, 5, seed=1), T, ZB, Y, ZY]),
    Case(
        "QLinearMatMul",
        [u8(2, 3, 4), S, ZA, u8(4, 5, seed=1, dtype=np.int8), scales(5) / 4, np.zeros(5, np.int8), Y, ZY],
        same_as=[((4, 0), (3, 1)), ((5, 0), (3, 1))],
    ),
    Case("QLinearConv", [u8(2, 3, 6, 5), S, ZA, u8(4, 3, 3, 3, seed=1), T, ZB, Y, ZY], fixed=FIXED),
    Case(
        "QLinearConv",
        [
            u8(2, 3, 6, 5),
            S,
            ZA,
            u8(4, 3, 3, 3, seed=1, dtype=np.int8),
            scales(4) / 4,
            np.zeros(4, np.int8),
            Y,
            ZY,
            u8(4, dtype=np.int32) // 1000000,
        ],
        {"pads": [1, 1, 1, 1], "strides": [2, 1]},
        [3, 4, 5, 8],
        fixed=FIXED,
    ),
    Case(
        "QLinearConv", [u8(1, 4, 6), S, ZA, u8(4, 2, 3, seed=1), T, ZB, Y, ZY], {"group": 2}, fixed=FIXED[:-3]
    ),
    Case("QGemm", [u8(3, 4), S, ZA, u8(4, 5, seed=1), T, ZB, None, Y, ZY], domain=M),
    Case(
        "QGemm",
        [u8(4, 3), S, ZA, u8(5, 4, seed=1), T, ZB, u8(5, dtype=np.int32) // 1000000, Y, ZY],
        {"transA": 1, "transB": 1, "alpha": 0.5},
        domain=M,
        same_as=[((6, 0), (3, 0))],
    ),
    Case(
        "QGemm",
        [u8(3, 4), S, ZA, u8(4, 5, seed=1), scales(5), u8(5), u8(5, dtype=np.int32) // 1000000],
        domain=M,
        same_as=[((6, 0), (3, 1)), ((4, 0), (3, 1)), ((5, 0), (3, 1))],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case)
