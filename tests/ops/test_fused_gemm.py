"""FusedGemm: every activation with and without its parameters."""

from __future__ import annotations

import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32

M = "com.microsoft"
ROWS = [
    {"activation": "Relu"},
    {"activation": "LeakyRelu", "activation_alpha": 0.3},
    {"activation": "Elu", "activation_alpha": 0.3},
    {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    {"activation": "Selu", "activation_alpha": 1.5, "activation_gamma": 1.1},
    {"activation": "Tanh", "transB": 1, "alpha": 0.5, "beta": 2.0},
]


@pytest.mark.parametrize("attributes", ROWS, ids=str)
def test_matches_onnxruntime(attributes: dict[str, object]) -> None:
    b = f32(5, 4, seed=1) if "transB" in attributes else f32(4, 5, seed=1)
    check_expansion(Case("FusedGemm", [f32(3, 4), b, f32(5, seed=2)], attributes, domain=M), tolerance=1e-5)


def test_without_a_third_operand() -> None:
    check_expansion(
        Case("FusedGemm", [f32(3, 4), f32(4, 5)], {"activation": "Sigmoid"}, domain=M), tolerance=1e-5
    )
