"""Conv: one to three spatial axes, groups, strides, dilations and paddings."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32


def conv(x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, **attributes: object) -> Case:
    operands = [f32(*x), f32(*w, seed=1), *([f32(w[0], seed=2)] if bias else [])]
    return Case("Conv", operands, attributes, list(range(1, len(operands))))


CASES = [
    conv((1, 3, 7, 6), (4, 3, 3, 3)),
    conv((2, 3, 7, 6), (4, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]),
    conv((1, 3, 7, 6), (4, 3, 3, 2), pads=[0, 1, 2, 0]),
    conv((1, 8, 5, 5), (6, 8, 1, 1)),
    conv((1, 8, 5, 5), (6, 8, 1, 1), bias=False, strides=[2, 2]),
    conv((1, 6, 5, 5), (6, 1, 3, 3), group=6, pads=[1, 1, 1, 1]),
    conv((1, 6, 5, 5), (12, 1, 3, 3), group=6),
    conv((1, 6, 5, 5), (9, 2, 3, 3), group=3, pads=[1, 1, 1, 1]),
    conv((1, 2, 9, 9), (3, 2, 3, 3), dilations=[2, 3], pads=[1, 2, 3, 4]),
    conv((1, 2, 9, 8), (3, 2, 3, 3), auto_pad="SAME_UPPER", strides=[2, 3]),
    conv((1, 2, 9, 8), (3, 2, 3, 3), auto_pad="SAME_LOWER", strides=[2, 3]),
    conv((1, 2, 9, 8), (3, 2, 3, 3), auto_pad="VALID"),
    conv((2, 3, 11), (4, 3, 5), pads=[2, 2]),
    conv((1, 2, 4, 5, 6), (3, 2, 2, 3, 3), pads=[0, 1, 1, 1, 0, 1]),
    conv((1, 2, 9, 8), (3, 2, 3, 3), auto_pad="SAME_LOWER", strides=[1, 2]),
    conv((1, 2, 9, 8), (3, 2, 1, 1), auto_pad="SAME_UPPER", strides=[2, 3]),
    conv((2, 4, 11), (4, 1, 5), auto_pad="SAME_UPPER", group=4),
    conv((1, 4, 4, 5, 6), (6, 2, 2, 2, 3), group=2, strides=[2, 1, 1], dilations=[1, 2, 1]),
    conv((1, 3, 7, 6), (0, 3, 3, 3)),
    conv((0, 3, 7, 6), (4, 3, 3, 3)),
    conv((1, 1, 1, 1), (1, 1, 1, 1)),
    Case("Conv", [f32(1, 3, 7, 6), f32(4, 3, 3, 3, seed=1)], fixed=[(1, a) for a in range(4)]),
    Case("Conv", [f32(1, 3, 7, 6), f32(4, 3, 3, 3, seed=1)], {"kernel_shape": [3, 3]}),
    Case("Conv", [f32(1, 3, 7, 6).astype(np.float64), f32(4, 3, 3, 3, seed=1).astype(np.float64)], {}, [1]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
