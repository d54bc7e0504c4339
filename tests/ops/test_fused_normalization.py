"""Normalizations of sums and embeddings, with all that they also give."""

from __future__ import annotations

import numpy as np
import pytest

from .expansion_harness import check_expansion
from .harness import Case, f32

M = "com.microsoft"
X, SKIP, GAMMA, BETA, BIAS = (
    f32(2, 3, 8),
    f32(2, 3, 8, seed=1),
    f32(8, seed=2),
    f32(8, seed=3),
    f32(8, seed=4),
)
SAME = [((1, n), (0, n)) for n in range(3)] + [((n, 0), (0, 2)) for n in (2, 3, 4)]
IDS = np.array([[1, 5, 3], [0, 2, 6]], np.int32)
SEGMENTS = np.array([[0, 0, 1], [1, 0, 1]], np.int32)
TABLES = f32(7, 8, seed=5), f32(6, 8, seed=6), f32(2, 8, seed=7)
MASK = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
EMBED = (
    [((1, n), (0, n)) for n in range(2)]
    + [((7, n), (0, n)) for n in range(2)]
    + [((8, n), (0, n)) for n in range(2)]
)
EMBED += [((n, 1), (2, 1)) for n in (3, 4)] + [((n, 0), (2, 1)) for n in (5, 6)]
CASES = [
    Case("SimplifiedLayerNormalization", [X, GAMMA], {"axis": -1, "epsilon": 1e-6}, same_as=SAME),
    Case("SimplifiedLayerNormalization", [X, f32(3, 8)], {"axis": 1}, outputs=2, fixed=[(1, 0)]),
    Case("SkipLayerNormalization", [X, SKIP, GAMMA], domain=M, same_as=SAME),
    Case("SkipLayerNormalization", [X, SKIP, GAMMA, BETA], {"epsilon": 1e-3}, domain=M, same_as=SAME),
    Case(
        "SkipLayerNormalization",
        [X, f32(3, 8), GAMMA, BETA, BIAS],
        domain=M,
        fixed=[(0, 1), (1, 0)],
        same_as=[((1, 1), (0, 2)), *SAME[3:]],
    ),
    Case("SkipSimplifiedLayerNormalization", [X, SKIP, GAMMA], domain=M, same_as=SAME),
    Case("SkipSimplifiedLayerNormalization", [X, SKIP, GAMMA, BIAS], domain=M, same_as=SAME),
    Case(
        "EmbedLayerNormalization",
        [IDS, SEGMENTS, *TABLES, GAMMA, BETA, MASK],
        outputs=2,
        domain=M,
        same_as=EMBED,
    ),
    Case(
        "EmbedLayerNormalization",
        [IDS, None, *TABLES[:2], None, GAMMA, BETA],
        outputs=2,
        domain=M,
        same_as=EMBED,
    ),
    Case(
        "EmbedLayerNormalization",
        [IDS, SEGMENTS, *TABLES, GAMMA, BETA, MASK, IDS[:, ::-1] % 6],
        outputs=3,
        domain=M,
        same_as=EMBED,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=1e-5)


def test_the_sum_is_given_too() -> None:
    from cuvil_build.reference import run_reference

    from .expansion_harness import expanded

    case = Case("SkipLayerNormalization", [X, SKIP, GAMMA, BETA], outputs=4, domain=M)
    found = run_reference(expanded(case), {"x0": X, "x1": SKIP, "x2": GAMMA, "x3": BETA}).outputs
    np.testing.assert_allclose(found["y3"], X + SKIP)
    np.testing.assert_allclose(found["y1"][..., 0], (X + SKIP).mean(-1), rtol=1e-4, atol=1e-6)
