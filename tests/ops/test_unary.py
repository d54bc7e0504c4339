"""Unary operators: one row each, and shapes at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

SHAPES = [(), (1,), (0, 3), (5, 7), (2, 1, 3)]
SMALL = f32(3, 5, low=-0.9, high=0.9)
WIDE = f32(4, 9, low=-9.0, high=9.0)
POSITIVE = f32(3, 5, low=0.1, high=4.0)
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5], dtype=np.float32)
INTEGERS = np.array([[-7, 0, 3], [2, -1, 9]], dtype=np.int64)

CASES = [
    *(Case("Abs", [f32(*shape)]) for shape in SHAPES),
    *(Case(op, [WIDE]) for op in "Abs Ceil Cos Erf Floor HardSwish Identity Mish Neg Relu Round".split()),
    *(Case(op, [WIDE]) for op in "Sigmoid Sign Sin Softplus Softsign Tanh Atan Elu Selu Celu".split()),
    *(Case(op, [SMALL]) for op in "Acos Asin Asinh Atanh Cosh Exp Sinh Tan".split()),
    *(Case(op, [POSITIVE]) for op in "Log Reciprocal Sqrt".split()),
    *(Case(op, [INTEGERS]) for op in "Abs BitwiseNot Neg Sign Relu Identity".split() if op != "Relu"),
    *(Case(op, [ODD]) for op in "IsNaN IsInf Round".split()),
    Case("Acosh", [f32(3, 5, low=1.0, high=4.0)]),
    Case("Elu", [WIDE], {"alpha": 0.3}),
    Case("Gelu", [WIDE]),
    Case("Gelu", [WIDE], {"approximate": "tanh"}),
    Case("HardSigmoid", [WIDE]),
    Case("HardSigmoid", [WIDE], {"alpha": 0.5, "beta": 0.1}),
    Case("IsInf", [ODD], {"detect_negative": 0}),
    Case("IsInf", [ODD], {"detect_positive": 0}),
    Case("LeakyRelu", [WIDE]),
    Case("LeakyRelu", [WIDE], {"alpha": 0.3}),
    Case("Not", [np.array([True, False])]),
    Case("Round", [np.array([0.5, 1.5, 2.5, -0.5, -1.5], dtype=np.float32)]),
    Case("Shrink", [WIDE], {"bias": 0.5, "lambd": 1.5}),
    Case("Swish", [WIDE], {"alpha": 0.7}),
    Case("ThresholdedRelu", [WIDE], {"alpha": 0.7}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
