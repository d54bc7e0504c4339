"""DepthToSpace and SpaceToDepth in both orders."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

X = f32(2, 12, 2, 3)
Y = f32(2, 3, 4, 6)

CASES = [
    *(Case("DepthToSpace", [X], {"blocksize": 2, "mode": mode}) for mode in ("DCR", "CRD")),
    Case("DepthToSpace", [X], {"blocksize": 1}),
    Case("SpaceToDepth", [Y], {"blocksize": 2}),
    Case("SpaceToDepth", [Y.astype(np.int32)], {"blocksize": 2}),
    Case("SpaceToDepth", [f32(0, 3, 4, 6)], {"blocksize": 2}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
