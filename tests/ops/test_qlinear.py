"""Operators between a dequantization and a quantization: at most a tie falls to the other side."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.reference import run_reference

from .expansion_harness import expanded
from .harness import Case, reference
from .test_quantize_linear import u8

M = "com.microsoft"
S, T, Y = np.float32(0.03), np.float32(0.02), np.float32(0.05)
ZA, ZB, ZY = np.uint8(100), np.uint8(120), np.uint8(90)
IMAGE = u8(2, 3, 6, 5)
CASES = [
    Case("QLinearAdd", [u8(3, 4), S, ZA, u8(3, 4, seed=1), T, ZB, Y, ZY], domain=M),
    Case("QLinearAdd", [u8(3, 4), S, ZA, u8(4, seed=1), T, ZB, Y, ZY], domain=M),
    Case("QLinearMul", [u8(3, 4), S, ZA, u8(3, 1, seed=1), T, ZB, Y, ZY], domain=M),
    Case(
        "QLinearMul",
        [u8(3, 4, dtype=np.int8), S, np.int8(5), u8(4, dtype=np.int8), T, np.int8(-5), Y, np.int8(1)],
        domain=M,
    ),
    Case("QLinearSigmoid", [u8(3, 4), S, ZA, np.float32(1 / 256), np.uint8(0)], domain=M),
    Case("QLinearLeakyRelu", [u8(3, 4), S, ZA, S, ZY], {"alpha": 0.2}, domain=M),
    Case("QLinearAveragePool", [IMAGE, S, ZA, S, ZY], {"kernel_shape": [3, 2], "strides": [2, 1]}, domain=M),
    Case(
        "QLinearAveragePool",
        [IMAGE, S, ZA, S, ZY],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "channels_last": 1},
        domain=M,
    ),
    Case("QLinearGlobalAveragePool", [IMAGE, S, ZA, S, ZY], domain=M),
    Case("QLinearGlobalAveragePool", [IMAGE, S, ZA, S, ZY], {"channels_last": 1}, domain=M),
    Case("QLinearConcat", [Y, ZY, u8(3, 4), S, ZA, u8(3, 2, seed=1), T, ZB], {"axis": 1}, domain=M),
    Case(
        "QLinearSoftmax",
        [u8(3, 4), S, ZA, np.float32(1 / 256), np.uint8(0)],
        {"axis": -1, "opset": 13},
        domain=M,
    ),
    Case(
        "QLinearSoftmax",
        [u8(2, 3, 4), S, ZA, np.float32(1 / 256), np.uint8(0)],
        {"axis": 1, "opset": 11},
        domain=M,
    ),
    Case("QLinearWhere", [u8(3, 4) > 99, u8(3, 4), S, ZA, u8(3, 4, seed=1), T, ZB, Y, ZY], domain=M),
    Case("QuantizeLinear", [np.linspace(-3, 3, 7, dtype=np.float32), S, ZA], domain=M),
    Case("DequantizeLinear", [u8(3, 4), S, ZA], domain=M),
    Case("DequantizeLinear", [u8(3, 4), np.array([1, 2, 3], np.float32), u8(3)], {"axis": 0}, domain=M),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    (want,) = reference(case)
    feeds = {f"x{n}": a for n, a in enumerate(case.inputs) if a is not None}
    found = run_reference(expanded(case), feeds).outputs["y0"]
    assert found.dtype == want.dtype and found.shape == want.shape
    gap = np.abs(found.astype(np.float64) - want.astype(np.float64))
    assert gap.max() <= 1 and (gap > 0).mean() <= 0.1, gap.max()


def test_a_mean_of_some_axes() -> None:
    """This onnxruntime has no kernel for it."""
    case = Case("QLinearReduceMean", [IMAGE, S, ZA, S, ZY], {"axes": [2, 3], "keepdims": 0}, domain=M)
    mean = (IMAGE.astype(np.float32) - ZA).mean((2, 3))
    feeds = {f"x{n}": a for n, a in enumerate(case.inputs) if a is not None}
    found = run_reference(expanded(case), feeds).outputs["y0"]
    np.testing.assert_array_equal(found, np.clip(np.rint(mean) + ZY, 0, 255).astype(np.uint8))
