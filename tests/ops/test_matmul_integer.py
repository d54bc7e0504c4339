"""MatMulInteger: exact sums, zero points for all, per row and per column."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check
from .test_quantize_linear import u8

CASES = [
    Case("MatMulInteger", [u8(3, 4), u8(4, 5, seed=1)]),
    Case("MatMulInteger", [u8(3, 4), u8(4, 5, seed=1, dtype=np.int8), np.uint8(128)]),
    Case(
        "MatMulInteger",
        [u8(3, 4), u8(4, 5, seed=1, dtype=np.int8), np.uint8(3), np.int8(-7)],
        constants=[1, 3],
    ),
    Case("MatMulInteger", [u8(2, 3, 4), u8(4, 5, seed=1, dtype=np.int8), np.uint8(3), u8(5, dtype=np.int8)]),
    Case("MatMulInteger", [u8(2, 3, 4), u8(2, 4, 5, seed=1), np.uint8([3]), np.uint8([9])]),
    Case("MatMulInteger", [u8(1, 300), u8(300, 2, seed=1), np.uint8(0), np.uint8(255)], constants=[1, 2, 3]),
    Case("MatMulInteger", [u8(3, 0), u8(0, 2, seed=1)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_the_evaluator(case: Case) -> None:
    """Not onnxruntime: its sums of pairs of uint8 with int8 products saturate on some CPUs."""
    check(case, evaluator=True)


def test_bytes_without_zero_points_are_read_as_they_are() -> None:
    region = check(
        Case("MatMulInteger", [u8(3, 4), u8(4, 5, seed=1, dtype=np.int8)], constants=[1]), evaluator=True
    )
    (nest,) = region.nests
    assert nest.anchor == "contraction"
    assert sorted(b.dtype.name for b in nest.buffers()) == ["int32", "int8", "uint8"]
