"""Products of 8-bit operands whose result is float."""

from __future__ import annotations

import numpy as np
import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32
from .test_quantize_linear import scales, u8

M = "com.microsoft"
A, B, S8 = u8(3, 4), u8(4, 5, seed=1), u8(4, 5, seed=1, dtype=np.int8)
ONE, TWO = np.float32(0.03), np.float32(0.02)
SAME = [((3, 0), (1, 1)), ((5, 0), (1, 1)), ((6, 0), (1, 1))]
DYNAMIC = [((2, 0), (1, 1)), ((3, 0), (1, 1)), ((4, 0), (1, 1))]
CASES = [
    Case("MatMulIntegerToFloat", [A, B, ONE, TWO], domain=M),
    Case("MatMulIntegerToFloat", [A, S8, ONE, TWO, np.uint8(7), np.int8(-3), f32(5)], domain=M, same_as=SAME),
    Case("MatMulIntegerToFloat", [A, B, ONE, scales(5), np.uint8(7), u8(5)], domain=M, same_as=SAME),
    Case("DynamicQuantizeMatMul", [f32(3, 4), S8, TWO], domain=M),
    Case("DynamicQuantizeMatMul", [f32(3, 4), B, TWO, np.uint8(9), f32(5)], domain=M, same_as=DYNAMIC),
    Case("DynamicQuantizeMatMul", [f32(2, 3, 4), B, scales(5), u8(5), f32(5)], domain=M, same_as=DYNAMIC),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=1e-5)
