"""com.microsoft's MultiHeadAttention: packed and apart, masks, biases, caches."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.reference import run_reference

from .expansion_harness import check_expansion, expanded
from .harness import Case, f32, reference

M = "com.microsoft"
HEADS = {"num_heads": 2}
Q, K, V = f32(2, 3, 8), f32(2, 5, 8, seed=1), f32(2, 5, 12, seed=2)
BIAS = f32(28, seed=3)
FIXED = [(0, 2), (1, 2), (2, 2), (3, 0), (5, 1), (6, 1), (6, 3), (7, 1), (7, 3)]
SAME = [
    ((1, 0), (0, 0)),
    ((2, 0), (0, 0)),
    ((2, 1), (1, 1)),
    ((4, 0), (0, 0)),
    ((4, 1), (1, 1)),
    ((5, 2), (0, 1)),
    ((5, 3), (1, 1)),
    ((5, 0), (0, 0)),
    ((6, 0), (0, 0)),
    ((7, 0), (0, 0)),
    ((7, 2), (6, 2)),
]
PAST = f32(2, 2, 4, 4, seed=4), f32(2, 2, 4, 4, seed=5)


def case(
    operands: list[np.ndarray | None], outputs: int = 1, fixed: list[tuple[int, int]] = FIXED, **more: object
) -> Case:
    return Case(
        "MultiHeadAttention",
        operands,
        {**HEADS, **more},
        outputs=outputs,
        domain=M,
        same_as=SAME,
        fixed=fixed,
    )


CASES = [
    case([Q, K, V]),
    case([Q, K, V, BIAS], scale=0.25),
    case([Q, K, V, None, np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)]),
    case([Q, K, V, None, np.array([3, 5], np.int32)]),
    case([Q, K, V, BIAS, None, f32(1, 2, 3, 5, seed=6)]),
    case(
        [Q, f32(2, 3, 8, seed=1), f32(2, 3, 8, seed=2), None, None, None, *PAST],
        3,
        [*FIXED, (0, 1), (1, 1), (2, 1), (6, 2), (7, 2)],
    ),
    case(
        [Q, f32(2, 3, 8, seed=1), f32(2, 3, 12, seed=2)],
        unidirectional=1,
        fixed=[*FIXED, (0, 1), (1, 1), (2, 1)],
    ),
    case(
        [Q, f32(2, 2, 5, 4, seed=1), f32(2, 2, 5, 4, seed=2)],
        fixed=[(0, 2), *((n, a) for n in (1, 2) for a in (1, 2, 3))],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check_expansion(case, tolerance=2e-5)


def test_packed_operands_are_the_same_attention() -> None:
    """onnxruntime's CPU takes them apart only."""
    q, k, v, bias = f32(2, 3, 8), f32(2, 3, 8, seed=1), f32(2, 3, 8, seed=2), f32(24, seed=3)
    want = reference(case([q, k, v, bias]))[0]
    heads = [x.reshape(2, 3, 2, 4) for x in (q, k, v)]
    found = run_reference(
        expanded(case([np.stack(heads, 3), None, None, bias])), {"x0": np.stack(heads, 3), "x3": bias}
    )
    np.testing.assert_allclose(found.outputs["y0"], want, rtol=1e-5, atol=1e-5)
    want = reference(case([q, k, v]))[0]
    pair = np.stack(heads[1:], 3)
    found = run_reference(expanded(case([q, pair])), {"x0": q, "x1": pair})
    np.testing.assert_allclose(found.outputs["y0"], want, rtol=1e-5, atol=1e-5)
