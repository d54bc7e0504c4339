"""MaxPool with its indices, and AveragePool."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

X = f32(2, 3, 7, 6)
TIES = np.round(f32(2, 3, 7, 6, low=-1, high=1))
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
    Case("AveragePool", [X], {**KERNEL, "dilations": [2, 2], "pads": [1, 1, 1, 1]}),
    Case("AveragePool", [X], {**KERNEL, "dilations": [2, 1], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    Case("AveragePool", [X], {**KERNEL, "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    Case("AveragePool", [f32(1, 2, 9)], {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    Case(
        "AveragePool",
        [f32(1, 2, 1, 4)],
        {
            "kernel_shape": [2, 3],
            "dilations": [2, 2],
            "strides": [1, 2],
            "pads": [1, 0, 1, 1],
            "ceil_mode": 1,
        },
    ),
    Case("MaxPool", [f32(1, 2, 6, 1)], {"kernel_shape": [3, 2], "strides": [3, 3], "ceil_mode": 1}),
    Case("MaxPool", [X], KERNEL, outputs=2),
    Case("MaxPool", [X], {**KERNEL, "strides": [2, 2], "pads": [1, 0, 1, 1]}, outputs=2),
    Case("MaxPool", [X], {**KERNEL, "storage_order": 1, "pads": [1, 1, 1, 1]}, outputs=2),
    Case("MaxPool", [TIES], {**KERNEL, "storage_order": 1}, outputs=2),
    Case("MaxPool", [TIES], {**KERNEL, "dilations": [2, 1]}, outputs=2),
    Case("MaxPool", [f32(1, 2, 9)], {"kernel_shape": [3], "strides": [2]}, outputs=2),
    Case("MaxPool", [f32(2, 2, 4, 5, 6)], {"kernel_shape": [2, 2, 2], "pads": [1, 0, 1, 0, 1, 0]}, outputs=2),
    Case("MaxPool", [f32(1, 2, 4, 5, 6)], {"kernel_shape": [2, 2, 2], "storage_order": 1}, outputs=2),
    Case("MaxPool", [X], {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1}, outputs=2),
    Case("MaxPool", [X], {**KERNEL, "auto_pad": "VALID", "strides": [2, 2]}),
    *(Case("MaxPool", [X.astype(d)], {**KERNEL, "pads": [1, 0, 1, 1]}) for d in ("int8", "float64")),
    Case("MaxPool", [np.abs(X * 50).astype(np.uint8)], {**KERNEL, "pads": [1, 0, 1, 1]}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
