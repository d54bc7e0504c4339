"""FusedConv and NhwcConv."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.reference import run_reference

from .expansion_harness import check_expansion, expanded
from .harness import Case, f32, reference

M = "com.microsoft"
FIXED = [(0, 1), *((1, n) for n in range(4)), (2, 0), (3, 1)]
X, W, B, Z = f32(2, 3, 6, 5), f32(4, 3, 3, 3, seed=1), f32(4, seed=2), f32(2, 4, 6, 5, seed=3)
PADS = {"pads": [1, 1, 1, 1]}
SAME = [((3, 0), (0, 0)), ((3, 2), (0, 2)), ((3, 3), (0, 3))]
CASES = [
    Case("FusedConv", [X, W], {"activation": "Relu"}, domain=M, fixed=FIXED),
    Case(
        "FusedConv", [X, W, B], {"activation": "LeakyRelu", "activation_params": [0.1]}, domain=M, fixed=FIXED
    ),
    Case(
        "FusedConv",
        [X, W, B],
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
        domain=M,
        fixed=FIXED,
    ),
    Case("FusedConv", [X, W, B, Z], {"activation": "Relu", **PADS}, domain=M, fixed=FIXED, same_as=SAME),
    Case(
        "FusedConv",
        [X, W, B],
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
        domain=M,
        fixed=FIXED,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=1e-5)


def test_channels_last_are_the_same_convolution() -> None:
    """onnxruntime's CPU has no NhwcConv."""
    want = np.moveaxis(reference(Case("Conv", [X, W, B], PADS))[0], 1, -1)
    feeds = {"x0": np.moveaxis(X, 1, -1), "x1": W, "x2": B}
    model = expanded(Case("NhwcConv", list(feeds.values()), PADS, domain=M))
    np.testing.assert_allclose(run_reference(model, feeds).outputs["y0"], want, rtol=1e-5, atol=1e-5)
