"""BatchNormalization as inference does it, and InstanceNormalization."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32

PARAMETERS = [f32(3, seed=1), f32(3, seed=2), f32(3, seed=3), f32(3, seed=4, low=0.1)]

CASES = [
    Case("BatchNormalization", [f32(2, 3, 4, 5), *PARAMETERS], {"epsilon": 1e-3}, [1, 2, 3, 4]),
    Case("BatchNormalization", [f32(2, 3), *PARAMETERS]),
    Case("BatchNormalization", [f32(0, 3, 4), *PARAMETERS], constants=[1, 2, 3, 4]),
    Case("InstanceNormalization", [f32(2, 3, 4, 5), *PARAMETERS[:2]]),
    Case("InstanceNormalization", [f32(2, 3, 7), *PARAMETERS[:2]], {"epsilon": 1e-2}),
    Case("BatchNormalization", [f32(2, 3, 4, 5), *PARAMETERS], {"training_mode": 1}, outputs=3),
    Case("BatchNormalization", [f32(5, 3), *PARAMETERS], {"training_mode": 1, "momentum": 0.7}, outputs=3),
    Case("BatchNormalization", [v.astype(np.float64) for v in (f32(2, 3, 4), *PARAMETERS)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
