"""What operators refuse, and in which words."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.errors import CuvilError, NotYet, ShapeMismatch, UnsupportedAttribute, UnsupportedDtype

from .harness import Case, check_one, f32, i64

CASES = [
    (Case("Add", [f32(2, 3), f32(2, 4)]), ShapeMismatch, "axis 1"),
    (Case("MatMul", [f32(2, 3), f32(4, 5)]), ShapeMismatch, "inner dims of MatMul"),
    (Case("Gemm", [f32(2, 3), f32(3, 5), f32(4)]), ShapeMismatch, "C of Gemm"),
    (Case("Conv", [f32(1, 3, 5, 5), f32(4, 2, 3, 3)]), ShapeMismatch, "channels of Conv"),
    (Case("Conv", [f32(1, 3, 2, 2), f32(4, 3, 3, 3)]), ShapeMismatch, "window on spatial axis 0"),
    (Case("Conv", [f32(1, 3, 5, 5), f32(4, 3, 3, 3)], {"strides": [1]}), ShapeMismatch, "strides"),
    (Case("Conv", [f32(1, 3, 5, 5), f32(4, 3, 3, 3)], {"auto_pad": "ODD"}), UnsupportedAttribute, "auto_pad"),
    (Case("Reshape", [f32(2, 3), i64(5)], constants=[1]), ShapeMismatch, "elements of Reshape"),
    (Case("Reshape", [f32(2, 3), i64(-1, -1)], constants=[1]), ShapeMismatch, "more than one -1"),
    (Case("Unsqueeze", [f32(2, 3), i64(1)]), NotYet, "axes that depend on a dim"),
    (Case("Concat", [f32(2, 3), f32(3, 3)], {"axis": 1}), ShapeMismatch, "Concat, axis 0"),
    (Case("Softmax", [f32(2, 3)], {"axis": 2}), ShapeMismatch, "outside a tensor of rank 2"),
    (Case("Transpose", [f32(2, 3)], {"perm": [0, 0]}), ShapeMismatch, "perm"),
    (Case("Squeeze", [f32(2, 3), i64(0)], constants=[1]), ShapeMismatch, "squeezed axis 0"),
    (Case("Split", [f32(5), i64(2, 2)], {}, [1], outputs=2), ShapeMismatch, "sizes of Split"),
    (
        Case("MaxPool", [f32(1, 1, 4, 4)], {"kernel_shape": [2, 2], "stride": [1, 1]}),
        UnsupportedAttribute,
        "stride",
    ),
    (Case("Pad", [f32(2), i64(2, 0)], {"mode": "reflect"}, [1]), ShapeMismatch, "reflection on axis 0"),
    (Case("Gelu", [f32(2)], {"approximation": "tanh"}), CuvilError, "approximation"),
    (
        Case("Dropout", [i64(2, 3), np.float32(0.5), np.array(True)], {}, [1, 2]),
        UnsupportedDtype,
        "while training",
    ),
    (
        Case(
            "LSTM", [f32(2, 1, 3), f32(1, 16, 3), f32(1, 16, 4)], {"activations": ["Sigmoid", "Tanh", "Odd"]}
        ),
        UnsupportedAttribute,
        "Odd",
    ),
    (
        Case("GRU", [f32(2, 1, 3), f32(1, 12, 3), f32(1, 12, 4), None, np.array([1, 2], np.int32)]),
        ShapeMismatch,
        "sequence_lens",
    ),
]


@pytest.mark.parametrize(
    ("case", "error", "text"), CASES, ids=lambda v: str(v) if isinstance(v, Case) else ""
)
def test_refusals_say_what_is_wrong(case: Case, error: type[CuvilError], text: str) -> None:
    with pytest.raises(error, match=text):
        check_one(case, [], free=False, tolerance=0)
