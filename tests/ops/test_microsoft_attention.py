"""com.microsoft's Attention and QAttention: masks of all forms, pasts, sizes of their own."""

from __future__ import annotations

import numpy as np
import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32
from .test_quantize_linear import u8

M = "com.microsoft"
X, W, B = f32(2, 3, 8), f32(8, 24, seed=1), f32(24, seed=2)
HEADS = {"num_heads": 2}
PAST = f32(2, 2, 2, 4, 4, seed=3)
RAW = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
SAME = [((1, 0), (0, 2)), ((2, 0), (1, 1)), ((3, 0), (0, 0)), ((3, 1), (0, 1)), ((4, 1), (0, 0))]
FIXED = [(0, 2), (1, 0), (1, 1), (2, 0), (4, 0), (4, 2), (4, 4)]
CASES = [
    Case("Attention", [X, W, B], HEADS, domain=M, same_as=SAME, fixed=FIXED),
    Case("Attention", [X, W, None], {**HEADS, "scale": 0.3}, domain=M, same_as=SAME, fixed=FIXED),
    Case("Attention", [X, W, B], {**HEADS, "unidirectional": 1}, domain=M, same_as=SAME, fixed=FIXED),
    Case("Attention", [X, W, B, RAW], HEADS, domain=M, same_as=SAME, fixed=FIXED),
    Case("Attention", [X, W, B, np.array([2, 3], np.int32)], HEADS, domain=M, same_as=SAME, fixed=FIXED),
    Case(
        "Attention",
        [X, W, B, np.array([2, 3, 0, 1], np.int32)],
        HEADS,
        domain=M,
        same_as=SAME,
        fixed=[*FIXED, (3, 0), (0, 0)],
    ),
    Case(
        "Attention",
        [X, W, B, np.tri(3, dtype=np.int32)[None].repeat(2, 0)],
        HEADS,
        domain=M,
        same_as=[*SAME, ((3, 2), (0, 1))],
        fixed=FIXED,
    ),
    Case(
        "Attention",
        [X, W, B, None, PAST],
        {**HEADS, "unidirectional": 1},
        outputs=2,
        domain=M,
        same_as=SAME,
        fixed=FIXED,
    ),
    Case(
        "Attention",
        [X, W, B, None, None, f32(2, 2, 3, 3, seed=4)],
        HEADS,
        domain=M,
        same_as=[((5, 0), (0, 0)), ((5, 2), (0, 1)), ((5, 3), (0, 1))],
        fixed=[*FIXED, (5, 1)],
    ),
    Case(
        "Attention",
        [X, f32(8, 20, seed=1), f32(20, seed=2)],
        {**HEADS, "qkv_hidden_sizes": [8, 8, 4]},
        domain=M,
        same_as=SAME,
        fixed=FIXED,
    ),
]
QUANTIZED = [u8(2, 3, 8), u8(8, 24, seed=1), B, np.float32(0.02), np.float32(0.01)]
Q_FIXED = [(0, 2), (1, 0), (1, 1), (2, 0), (8, 0), (8, 2), (8, 4)]
Q_SAME = [((5, 0), (0, 0)), ((5, 1), (0, 1)), ((8, 1), (0, 0))]
CASES += [
    Case("QAttention", [*QUANTIZED, None, np.uint8(128), np.uint8(120)], HEADS, domain=M, fixed=Q_FIXED),
    Case(
        "QAttention",
        [*QUANTIZED, RAW, np.uint8(128), np.uint8(120)],
        {**HEADS, "unidirectional": 1},
        domain=M,
        fixed=Q_FIXED,
        same_as=Q_SAME,
    ),
    Case(
        "QAttention",
        [*QUANTIZED, None, np.uint8(128), np.uint8(120), PAST],
        {**HEADS, "unidirectional": 1},
        outputs=2,
        domain=M,
        fixed=Q_FIXED,
        same_as=Q_SAME,
    ),
]
SIGNED = [u8(2, 3, 8), u8(8, 24, seed=1, dtype=np.int8), *QUANTIZED[2:], None, np.uint8(128), np.int8(3)]
CASES += [Case("QAttention", SIGNED, HEADS, domain=M, fixed=Q_FIXED)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=2e-5)
