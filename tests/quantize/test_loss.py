"""Metrics by hand, gates, and answers that say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.quantize.loss import (
    BEST_DB,
    DegenerateOutput,
    check_outputs,
    loss_of,
    loss_of_outputs,
)


def test_metrics_of_known_tensors() -> None:
    want = np.array([[3.0, 4.0], [0.0, 5.0]])
    found = loss_of(want + np.array([[2.0, 0.0], [0.0, 0.0]]), want)
    assert found.sqnr == pytest.approx(10 * np.log10(50 / 4))
    assert found.max_error == pytest.approx(2 / 5)
    assert found.top1 == 0.5
    assert found.cosine == pytest.approx((15 + 16 + 25) / np.sqrt((25 + 16 + 25) * 50))


def test_equal_tensors_lose_nothing() -> None:
    found = loss_of(np.ones((2, 3)), np.ones((2, 3)))
    assert (found.cosine, found.sqnr, found.max_error, found.top1) == (pytest.approx(1), BEST_DB, 0, 1)


def test_samples_of_several_sizes_are_one() -> None:
    want = [{"y": np.ones((1, 2))}, {"y": np.zeros((3, 2)), "n": np.zeros(3, np.int64)}]
    have = [{"y": np.ones((1, 2))}, {"y": np.full((3, 2), 0.1), "n": np.zeros(3, np.int64)}]
    found = loss_of_outputs(have, want)
    assert sorted(found) == ["y"] and found["y"].sqnr == pytest.approx(10 * np.log10(2 / 0.06))


@pytest.mark.parametrize("wrong", [np.array([[np.nan, 1.0]]), np.array([[np.inf, 1.0]]), np.zeros((1, 2))])
def test_an_answer_that_says_nothing(wrong: np.ndarray) -> None:
    with pytest.raises(DegenerateOutput, match="'y' of sample 1") as caught:
        check_outputs([{"y": wrong}], [{"y": np.array([[0.5, 1.0]])}])
    assert caught.value.exit_code == 3


def test_numbers_that_become_nan_beside_what_is_nan_in_the_model() -> None:
    right = np.array([[np.nan, 1.0, 2.0]])
    for wrong in (np.array([[np.nan, np.nan, 2.0]]), np.array([[np.nan, 1.0, 1.0]])):
        with pytest.raises(DegenerateOutput):
            check_outputs([{"y": wrong}], [{"y": right}])


def test_the_same_answer_for_every_sample() -> None:
    right = [{"y": np.array([[1.0, 2.0 + i]])} for i in range(3)]
    same = [{"y": np.array([[1.0, 1.5]])}] * 3
    with pytest.raises(DegenerateOutput, match="'y' is the same for all samples"):
        check_outputs(same, right)
    with pytest.raises(DegenerateOutput, match="'y' is the same for all samples"):
        check_outputs([{"y": np.array([[1.0, 1.5]] * 2)}], [{"y": np.array([[1.0, 1.5], [2.0, 3.0]])}])
    check_outputs(same, same)
    check_outputs(same, [{"y": np.array([[1.0, 1.5 + i / 1e4]])} for i in range(3)])
    check_outputs([{"y": np.array([[1.0, float(i > 1) + 2]])} for i in range(3)], right)


def test_what_the_model_itself_answers_is_no_fault() -> None:
    for right in (np.array([[np.nan, 1.0]]), np.zeros((1, 2))):
        check_outputs([{"y": right}], [{"y": right}])
