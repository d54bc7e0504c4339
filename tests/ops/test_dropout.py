"""Dropout does nothing, unless the model trains."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, check, f32, lowered, operand_arrays, run_region

CASES = [
    Case("Dropout", [f32(2, 3)]),
    Case("Dropout", [f32(2, 3), np.float32(0.5), np.array(False)], constants=[1, 2], outputs=2),
    Case("Dropout", [f32(2, 3), np.float32(0), np.array(True)], constants=[1, 2], outputs=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def dropped(ratio: float, training: bool) -> tuple[np.ndarray, np.ndarray]:
    """With a ratio and a mode that only the run knows."""
    x = np.ones((200, 100), np.float32)
    case = Case("Dropout", [x, np.float32(ratio), np.array(training)], {"seed": 3}, outputs=2)
    region, sizes = lowered(case, [x, x.astype(bool)])
    y, mask = run_region(region, operand_arrays(case), sizes)
    return y, mask


@pytest.mark.parametrize(("ratio", "training"), [(0.0, True), (0.7, False)])
def test_nothing_is_dropped_without_a_ratio_or_without_training(ratio: float, training: bool) -> None:
    y, mask = dropped(ratio, training)
    assert mask.all() and (y == 1).all()


@pytest.mark.parametrize("ratio", [0.1, 0.7])
def test_as_many_are_dropped_as_the_ratio_says(ratio: float) -> None:
    y, mask = dropped(ratio, True)
    assert abs(mask.mean() - (1 - ratio)) < 0.02
    assert abs(mask[:, ::2].mean() - mask[:, 1::2].mean()) < 0.03
    np.testing.assert_allclose(y, mask / (1 - np.float32(ratio)), rtol=1e-6)


def test_all_are_dropped_with_a_ratio_of_one() -> None:
    y, mask = dropped(1.0, True)
    assert not mask.any() and not y.any()
