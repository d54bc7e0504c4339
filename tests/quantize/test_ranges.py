"""Each method cuts off what it should, and none of them loses a plain distribution."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.quantize.ranges import METHODS, Seen, choose

RNG = np.random.default_rng(1)


def seen(*arrays: np.ndarray) -> Seen:
    found = Seen()
    for array in arrays:
        found.ends(array)
    for array in arrays:
        found.fill(array)
    return found


@pytest.mark.parametrize("method", METHODS)
def test_a_uniform_distribution_is_kept_whole(method: str) -> None:
    low, high = choose(seen(RNG.uniform(0, 2, 50_000)), method, 99.99)
    assert low == 0 and high == pytest.approx(2, rel=0.03)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_a_single_outlier_is_cut_off(method: str) -> None:
    found = seen(RNG.standard_normal(100_000), np.array([80.0]))
    assert choose(found, method, 99.99)[1] < 10
    assert choose(found, "minmax")[1] == 80


def test_zeros_of_a_relu_do_not_hide_the_rest() -> None:
    array = np.maximum(RNG.standard_normal(100_000) - 1.5, 0)
    assert choose(seen(array), "entropy")[1] > 0.5 * array.max()


def test_the_least_squared_error_is_between_the_ends() -> None:
    low, high = choose(seen(RNG.laplace(size=100_000)), "mse")
    whole = choose(seen(RNG.laplace(size=100_000)), "minmax")
    assert whole[0] < low < 0 < high < whole[1] * 1.2


@pytest.mark.parametrize("method", METHODS)
def test_ends_join_all_samples_and_ignore_what_is_not_finite(method: str) -> None:
    found = seen(np.array([-1.0, 2.0]), np.array([3.0, np.nan, np.inf]), np.array([], np.float32))
    assert (found.low, found.high, found.count) == (-1, 3, 3)
    assert choose(found, method, 100) == pytest.approx((-1, 3), rel=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_a_constant_and_nothing(method: str) -> None:
    assert choose(seen(np.full(9, 2.5)), method) == (0, 2.5)
    assert choose(Seen(), method) == (0, 0)
