"""QuantizeLinear: rounding, saturation, axes, blocks."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.cuir.dtypes import FLOAT32, UINT8
from cuvil_build.kernel.expr import INPUT, Buffer, Cast, Const, Load
from cuvil_build.kernel.nest import parts
from cuvil_build.ops.quantization import dequantized, quantized

from .harness import Case, check, f32

HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e9, -1e9, 3.4e38], np.float32)


def u8(*shape: int, seed: int = 0, dtype: type = np.uint8) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng([seed, *shape]).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def scales(*shape: int) -> np.ndarray:
    return f32(*shape, seed=5, low=0.01, high=0.2)


QUANTIZE = [
    Case("QuantizeLinear", [HALVES, np.float32(1)]),
    Case("QuantizeLinear", [HALVES, np.float32(1), np.uint8(3)]),
    Case("QuantizeLinear", [HALVES, np.float32(0.5), np.int8(-5)], constants=[1, 2]),
    Case("QuantizeLinear", [HALVES, np.float32([1]), np.int16([700])]),
    Case("QuantizeLinear", [HALVES, np.float32(1), np.uint16(5)]),
    Case("QuantizeLinear", [f32(2, 3, 4), scales(3), u8(3)], {"axis": 1}),
    Case("QuantizeLinear", [f32(2, 3, 4), scales(4), u8(4, dtype=np.int8)], {"axis": -1}),
    Case("QuantizeLinear", [f32(2, 8), scales(2, 3), u8(2, 3)], {"axis": 1, "block_size": 3}),
    Case("QuantizeLinear", [f32(0, 8), np.float32(1)]),
    Case("QuantizeLinear", [f32(2, 3), np.float32(0.1)], {"output_dtype": 3}),
    Case("QuantizeLinear", [f32(2, 3).astype(np.float16), np.float16(0.1), np.uint8(7)]),
]


@pytest.mark.parametrize("case", QUANTIZE, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    if "block_size" in case.attributes:
        check_one_static(case)
    else:
        check(case)


def test_what_is_dequantized_at_once_stays_a_float() -> None:
    """Rounded, and never a byte: its zero point comes and goes."""
    value = Load(Buffer("x", FLOAT32, (), (), INPUT), ())
    zero, other, scale = Const(3, UINT8), Const(4, UINT8), Const(0.5, FLOAT32)
    byte = quantized(value, zero, UINT8)
    parts_of = [part for part in parts(dequantized(byte, scale, zero)) if isinstance(part, Cast)]
    assert not parts_of
    assert any(isinstance(part, Cast) for part in parts(dequantized(byte, scale, other)))
    assert any(isinstance(part, Cast) for part in parts(dequantized(byte, scale, None)))


def check_one_static(case: Case) -> None:
    from .harness import check_one, reference

    check_one(case, reference(case), free=False, tolerance=2e-6)
