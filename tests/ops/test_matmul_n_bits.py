"""MatMulNBits: blocks that fill the row or not, zero points packed and not, 4 and 8 bits."""

from __future__ import annotations

import pytest

from .expansion_harness import check_expansion, expanded
from .harness import Case, f32
from .test_quantize_linear import scales, u8

M = "com.microsoft"
N, BLOCK = 5, 16


def case(K: int, bits: int = 4, *, zeros: str = "", bias: bool = False, flat: bool = False) -> Case:
    blocks = -(-K // BLOCK)
    points = {
        "": None,
        "packed": u8(N, -(-blocks * bits // 8), seed=3),
        "float": f32(N, blocks, low=0, high=15),
    }[zeros]
    scale = scales(N * blocks) if flat else scales(N, blocks)
    operands = [f32(2, 3, K), u8(N, blocks, BLOCK * bits // 8), scale, points]
    operands += [None, f32(N)] if bias else []
    constants = [n for n in (1, 2, 3, 5) if n < len(operands) and operands[n] is not None]
    attributes = {"K": K, "N": N, "bits": bits, "block_size": BLOCK}
    return Case("MatMulNBits", operands, attributes, constants, domain=M, fixed=[(0, 2)])


CASES = [
    case(32),
    case(32, zeros="packed", flat=True),
    case(48, zeros="packed", bias=True),
    case(40),
    case(32, zeros="float"),
    case(48, 8),
    case(48, 8, zeros="packed"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=2e-5)


def test_weights_stay_four_bits_each() -> None:
    model = expanded(case(32))
    sizes = {t.const_value.dtype.name: t.const_value.nbytes for t in model.graph.initializers.values()
             if t.const_value is not None and "weights" in (t.name or "")}  # fmt: skip
    assert sizes == {"UINT4": N * 32 // 2}
