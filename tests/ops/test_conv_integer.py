"""ConvInteger: padding is zero once the zero point is taken off."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check
from .test_quantize_linear import u8

FIXED = [(0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
CASES = [
    Case("ConvInteger", [u8(2, 3, 5, 6), u8(4, 3, 3, 2, seed=1)], fixed=FIXED),
    Case("ConvInteger", [u8(1, 3, 5, 6), u8(4, 3, 3, 2, seed=1), np.uint8(77)], {"pads": [1, 1, 2, 0]}, [1]),
    Case("ConvInteger", [u8(1, 4, 7), u8(4, 2, 3, seed=1), np.uint8(77), np.uint8(3)],
         {"group": 2, "strides": [2], "dilations": [2]}, [1, 3]),
    Case("ConvInteger", [u8(1, 3, 5, 6), u8(4, 3, 1, 1, seed=1), np.uint8(7), u8(4, seed=2)],
         {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, [1, 3]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_the_evaluator(case: Case) -> None:
    """Not onnxruntime: its sums of pairs of uint8 with int8 products saturate on some CPUs."""
    check(case, evaluator=True)
