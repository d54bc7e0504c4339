"""MaxPool, AveragePool and the global pools."""

from __future__ import annotations

import pytest

from .harness import Case, check, f32

X = f32(2, 3, 7, 6)
KERNEL = {"kernel_shape": [3, 2]}

CASES = [
    *(Case(op, [X], {**KERNEL, "strides": [2, 2]}) for op in ("MaxPool", "AveragePool")),
    *(Case(op, [X], {**KERNEL, "pads": [1, 0, 1, 1]}) for op in ("MaxPool", "AveragePool")),
    *(Case(op, [X], {**KERNEL, "strides": [2, 3], "ceil_mode": 1}) for op in ("MaxPool", "AveragePool")),
    *(
        Case(op, [X], {**KERNEL, "auto_pad": "SAME_UPPER", "strides": [2, 2]})
        for op in ("MaxPool", "AveragePool")
    ),
    Case("MaxPool", [X], {**KERNEL, "dilations": [2, 2]}),
    Case("MaxPool", [f32(1, 2, 9)], {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    Case("MaxPool", [f32(0, 2, 9)], {"kernel_shape": [3]}),
    Case("AveragePool", [X], {**KERNEL, "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    Case(
        "AveragePool",
        [X],
        {**KERNEL, "pads": [1, 1, 1, 1], "count_include_pad": 1, "ceil_mode": 1, "strides": [2, 2]},
    ),
    Case("AveragePool", [X], {**KERNEL, "pads": [1, 1, 1, 1], "ceil_mode": 1, "strides": [2, 2]}),
    Case("AveragePool", [f32(1, 1, 4, 5, 6)], {"kernel_shape": [2, 2, 2]}),
    *(Case(op, [X]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    *(Case(op, [f32(1, 4, 1, 1)]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    *(Case(op, [f32(2, 3, 9)]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
