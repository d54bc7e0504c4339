"""Operators that ONNX defines by others: bodies for the call at hand."""

from __future__ import annotations

import numpy as np
import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32, i64

Q, K, V = f32(2, 4, 3, 8), f32(2, 2, 5, 8, seed=1), f32(2, 2, 5, 6, seed=2)
LABELS = np.array([1, 0, 3, 2, 2], np.int64)
CASES = [
    Case("Attention", [Q, f32(2, 4, 5, 8, seed=1), f32(2, 4, 5, 6, seed=2)]),
    Case("Attention", [Q, K, V], {"is_causal": 1, "softcap": 2.0}),
    Case("Attention", [Q, K, V, f32(3, 5)], {"scale": 0.2}),
    Case(
        "Attention",
        [f32(2, 3, 32), f32(2, 5, 16, seed=1), f32(2, 5, 12, seed=2)],
        {"q_num_heads": 4, "kv_num_heads": 2},
    ),
    Case(
        "RotaryEmbedding", [f32(2, 4, 3, 8), f32(9, 4), f32(9, 4, seed=1), np.array([[0, 1, 2], [4, 5, 8]])]
    ),
    Case("SoftmaxCrossEntropyLoss", [f32(5, 4), LABELS], {"reduction": "mean"}),
    Case(
        "SoftmaxCrossEntropyLoss",
        [f32(5, 4), LABELS, f32(4, low=0.1)],
        {"reduction": "sum", "ignore_index": 2},
        outputs=2,
    ),
    Case("NegativeLogLikelihoodLoss", [f32(5, 4), LABELS], {"reduction": "none"}),
    Case("GroupNormalization", [f32(2, 6, 3, 4), f32(6, seed=1), f32(6, seed=2)], {"num_groups": 3}),
    Case("CenterCropPad", [f32(3, 8, 5), i64(5, 4)], {"axes": [0, 1]}, [1]),
    Case("HannWindow", [np.array(7)], {"periodic": 0}, [0]),
    Case("BlackmanWindow", [np.array(8)], {}, [0]),
    Case("HammingWindow", [np.array(8)], {}, [0]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=2e-5, free=False)
