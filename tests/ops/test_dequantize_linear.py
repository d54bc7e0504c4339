"""DequantizeLinear: zero points, axes, blocks."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check
from .test_quantize_linear import check_one_static, scales, u8

CASES = [
    Case("DequantizeLinear", [u8(3, 4), np.float32(0.1)]),
    Case("DequantizeLinear", [u8(3, 4), np.float32(0.1), np.uint8(200)]),
    Case("DequantizeLinear", [u8(3, 4, dtype=np.int8), np.float32([0.1]), np.int8([-128])], constants=[1, 2]),
    Case("DequantizeLinear", [u8(2, 3, 4), scales(3), u8(3, seed=1)], {"axis": -2}),
    Case("DequantizeLinear", [u8(6, 4), scales(2, 4), u8(2, 4, seed=1)], {"axis": 0, "block_size": 3}),
    Case("DequantizeLinear", [u8(7, dtype=np.int32) // 2, np.float32(0.1)]),
    Case("DequantizeLinear", [u8(7, dtype=np.uint16), np.float32(0.1), np.uint16(9)]),
    Case("DequantizeLinear", [u8(2, 3), np.float16(0.1), np.uint8(9)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    if "block_size" in case.attributes:
        check_one_static(case)
    else:
        check(case)
