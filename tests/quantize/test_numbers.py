"""Codes and scales: what they stand for is as near as the number of levels allows."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.quantize.numbers import (
    LEVELS,
    activation_parameters,
    beyond,
    by_block,
    by_channel,
    narrow_float,
)

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_channels_are_off_by_half_a_step_at_most(axis: int | None) -> None:
    weights = RNG.standard_normal((5, 7, 3)).astype(np.float32)
    found = by_channel(weights, axis)
    error = np.abs(found.per_channel(axis or 0) - weights)
    assert error.max() <= found.scale.max() / 2 * 1.001
    assert found.scale.shape == (() if axis is None else (weights.shape[axis],))
    assert found.codes.min() >= -127


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8"])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize(("shape", "axis"), [((70, 6), 0), ((6, 70), 1), ((16, 3), 0), ((4, 33), -1)])
def test_blocks_along_either_axis_with_a_short_last_one(
    dtype: str, block: int, shape: tuple[int, int], axis: int
) -> None:
    weights = RNG.standard_normal(shape).astype(np.float32)
    found = by_block(weights, axis, block, dtype, zero_points=dtype == "uint4", scale_dtype="float16")
    assert found.scale.shape[axis] == -(-shape[axis] // block)
    assert found.codes.min() >= LEVELS[dtype][0] and found.codes.max() <= LEVELS[dtype][1]
    step = np.repeat(found.scale.astype(np.float32), block, axis).take(range(shape[axis]), axis)
    assert (np.abs(found.blocked(axis, block) - weights) <= step * (0.51 if dtype != "uint4" else 1.01)).all()


@pytest.mark.parametrize("zero_points", [False, True])
def test_an_outlier_spoils_its_own_block_alone(zero_points: bool) -> None:
    weights = RNG.standard_normal((64, 4)).astype(np.float32)
    plain = by_block(weights, 0, 16, "int4", zero_points=zero_points).blocked(0, 16)
    weights[:, 2] *= 1000
    spoiled = by_block(weights, 0, 16, "int4", zero_points=zero_points).blocked(0, 16)
    kept = [0, 1, 3]
    assert np.array_equal(plain[:, kept], spoiled[:, kept])
    assert np.abs(spoiled[:, 2] - weights[:, 2]).max() < 0.2 * np.abs(weights[:, 2]).max()


@pytest.mark.parametrize("make", [lambda w, m: by_channel(w, 0, m).per_channel(0),
    lambda w, m: by_block(w, 1, 32, "int4", method=m).blocked(1, 32)])  # fmt: skip
def test_scales_of_the_least_error_are_never_worse(make: object) -> None:
    weights = RNG.standard_t(3, (8, 256)).astype(np.float32)
    errors = [float(np.square(make(weights, m) - weights).sum()) for m in ("nearest", "mse")]
    assert errors[1] <= errors[0]


def test_weights_of_zero_have_scales_of_one() -> None:
    found = by_channel(np.zeros((2, 3), np.float32), 0)
    assert (found.scale == 1).all() and not found.codes.any()
    blocks = by_block(np.zeros((16, 2), np.float32), 0, 16, "uint4", zero_points=True, scale_dtype="float16")
    assert not blocks.blocked(0, 16).any() and np.isfinite(blocks.scale).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("low", "high"), [(0, 6), (-1, 3), (2, 5), (-4, -1), (0, 0), (-1e-30, 1e-30)])
def test_zero_is_always_a_code(dtype: str, low: float, high: float) -> None:
    scale, zero = activation_parameters(low, high, dtype)
    least, largest = (0, 255) if dtype == "uint8" else (-128, 127)
    assert least <= zero <= largest and scale > 0
    if high - low > 1e-3:
        for number in (low, high):
            code = np.clip(np.rint(number / scale) + zero, least, largest)
            assert abs((code - zero) * scale - number) <= scale


def test_narrow_floats_end_where_they_end() -> None:
    given = np.array([1e5, -3.4e38, np.inf, np.nan, 0.1], np.float32)
    found = narrow_float(given, "float16").astype(np.float32)
    assert found[0] == 65504 and found[1] == -65504 and np.isinf(found[2]) and np.isnan(found[3])
    assert beyond(given, "float16") == 2 and beyond(given, "bfloat16") == 1
