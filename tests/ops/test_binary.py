"""Elementwise operators with several operands: one row each, and broadcasting."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, check_one, f32, i64

BROADCASTS = [
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((2, 3), ()),
    ((2, 1, 4), (3, 1)),
    ((0, 3), (1, 3)),
    ((1,), (5,)),
]
LEFT = np.array([[7, -7, 9], [4, -5, 0]], dtype=np.int64)
RIGHT = np.array([2, 3, -4], dtype=np.int64)
TRUTH = np.array([True, True, False, False])
OTHER = np.array([True, False, True, False])

UNSIGNED = np.array([1, 200, 255], np.uint8)
SHIFTS = np.array([3, 1, 7], np.uint8)

CASES = [
    *(Case("Add", [f32(*a), f32(*b, seed=1)]) for a, b in BROADCASTS),
    *(Case(op, [f32(3, 4), f32(3, 4, seed=1)]) for op in "Sub Mul Div Max Min Sum Mean PRelu".split()),
    *(
        Case(op, [f32(3, 4), f32(4, seed=1)])
        for op in "Equal Greater GreaterOrEqual Less LessOrEqual".split()
    ),
    *(Case(op, [LEFT, RIGHT]) for op in "Add Sub Mul Div Mod Max Min Equal Less".split()),
    *(Case(op, [LEFT, RIGHT]) for op in "BitwiseAnd BitwiseOr BitwiseXor".split()),
    *(Case(op, [TRUTH, OTHER]) for op in "And Or Xor Equal".split()),
    Case("Max", [f32(2, 3), f32(3, seed=1), f32(1, 1, seed=2)]),
    Case("Min", [f32(2, 3)]),
    Case("Mean", [f32(2, 3), f32(3, seed=1), f32(2, 1, seed=2)]),
    Case("Mod", [LEFT, RIGHT], {"fmod": 1}),
    Case("Mod", [f32(3, 4), f32(4, seed=1, low=0.5)], {"fmod": 1}),
    Case("Pow", [f32(3, 4, low=0.1), f32(4, seed=1)]),
    *(Case("Pow", [f32(3, 4), np.float32(e)], constants=[1]) for e in (1.0, 2.0, 3.0, -1.0, 0.0)),
    Case("Pow", [f32(3, 4, low=0.1), np.float32(0.5)], constants=[1]),
    Case("Pow", [f32(3, 4), i64(2)], constants=[1]),
    Case("Pow", [np.array([1, 2, 3], np.int32), np.array([4, 0.5, 2], np.float32)]),
    *(Case("BitShift", [UNSIGNED, SHIFTS], {"direction": d}) for d in ("LEFT", "RIGHT")),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_slopes_of_channels_as_they_were_before_opset_7() -> None:
    x, slope = f32(2, 3, 4, 5), f32(3, seed=1)
    wanted = np.where(x < 0, x * slope[:, None, None], x)
    check_one(Case("PRelu", [x, slope]), [wanted], free=False, tolerance=1e-6)
