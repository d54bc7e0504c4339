"""From floats to small integers with scales: whole channels, and blocks along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

LEVELS = {"int8": (-127, 127), "int4": (-8, 7), "uint4": (0, 15)}
"""Least and largest code; int8 leaves out -128, so that negation stays inside."""
CANDIDATES = 40
SMALLEST = 0.4
"""Scales from this part of the usual one on are tried for the least error."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Integers, one int8 each, with a scale for each channel or block."""

    codes: Array
    scale: Array
    zero_point: Array | None = None

    def per_channel(self, axis: int) -> Array:
        """The numbers that they stand for, of `by_channel`."""
        shape = [1] * self.codes.ndim
        if self.scale.size > 1:
            shape[axis] = self.scale.size
        return np.asarray(self.codes.astype(np.float32) * self.scale.reshape(shape))

    def blocked(self, axis: int, block: int) -> Array:
        """The numbers that they stand for, of `by_block`."""
        size = self.codes.shape[axis]
        scale = np.repeat(self.scale.astype(np.float32), block, axis).take(range(size), axis)
        codes = self.codes.astype(np.float32)
        if self.zero_point is not None:
            codes = codes - np.repeat(self.zero_point, block, axis).take(range(size), axis)
        return np.asarray(codes * scale)


def by_channel(weights: Array, axis: int | None, method: str = "nearest") -> Codes:
    """int8, symmetric; one scale for each index of the axis, or one for all."""
    axis = None if axis is None else axis % weights.ndim
    rows = (
        weights.reshape(1, -1)
        if axis is None
        else np.moveaxis(weights, axis, 0).reshape(weights.shape[axis], -1)
    )
    top = LEVELS["int8"][1]
    scale = _symmetric(rows, method, (-top, top))
    shape = [1] * weights.ndim
    if axis is not None:
        shape[axis] = -1
    codes = np.clip(np.rint(weights / scale.reshape(shape)), -top, top).astype(np.int8)
    return Codes(codes, scale if axis is not None else scale.reshape(()))


def by_block(
    weights: Array,
    axis: int,
    block: int,
    dtype: str,
    *,
    zero_points: bool = False,
    scale_dtype: str = "float32",
    method: str = "nearest",
) -> Codes:
    """A scale for each block of the axis, whose last block may be shorter."""
    axis %= weights.ndim
    moved = np.moveaxis(weights, axis, -1)
    count = -(-moved.shape[-1] // block)
    padded = np.zeros((*moved.shape[:-1], count * block), np.float32)
    padded[..., : moved.shape[-1]] = moved
    rows = padded.reshape(-1, block)
    scale, zero = grid_of(rows, dtype, zero_points=zero_points, scale_dtype=scale_dtype, method=method)
    whole = codes_of(rows, scale, zero, dtype).reshape(padded.shape)[..., : moved.shape[-1]]
    grid = (*moved.shape[:-1], count)

    def back(array: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(array, -1, axis))

    return Codes(back(whole), back(scale.reshape(grid)), None if zero is None else back(zero.reshape(grid)))


def grid_of(
    rows: Array, dtype: str, *, zero_points: bool, scale_dtype: str, method: str
) -> tuple[Array, Array | None]:
    """Scale and zero point of each row of a block's weights."""
    levels = LEVELS[dtype]
    if zero_points:
        return _affine(rows, levels, scale_dtype, method)
    return _symmetric(rows, method, levels, scale_dtype), None


def codes_of(rows: Array, scale: Array, zero: Array | None, dtype: str) -> Array:
    """The nearest codes, one int8 each."""
    codes = np.rint(rows / scale.astype(np.float32)[:, None]) + (0 if zero is None else zero[:, None])
    return np.clip(codes, *LEVELS[dtype]).astype(np.int8)


def scale_fits(weights: Array, dtype: str, scale_dtype: str) -> bool:
    """Whether scales of that dtype keep their digits: the largest one has to be a normal number."""
    if scale_dtype == "float32" or not weights.size:
        return True
    facts = np.finfo(np.float16)
    largest = float(np.abs(weights).max()) / max(LEVELS[dtype])
    return largest == 0 or float(facts.smallest_normal) <= largest <= float(facts.max)


def _symmetric(rows: Array, method: str, levels: tuple[int, int], dtype: str = "float32") -> Array:
    """A scale for each row, whose zero is code 0."""
    low, high = levels
    largest = np.abs(rows).max(axis=1, initial=0.0).astype(np.float32)
    scale = np.where(largest > 0, largest / high, 1).astype(np.float32)
    if method != "mse":
        return _rounded(scale, dtype)
    best, least = _rounded(scale, dtype), np.full(len(rows), np.inf)
    for part in np.linspace(SMALLEST, 1.0, CANDIDATES):
        kept = _rounded(scale * np.float32(part), dtype)
        tried = kept.astype(np.float32)[:, None]
        error = np.square(np.clip(np.rint(rows / tried), low, high) * tried - rows).sum(axis=1)
        best, least = np.where(error < least, kept, best), np.minimum(error, least)
    return best


def _affine(
    rows: Array, levels: tuple[int, int], scale_dtype: str, method: str = "nearest"
) -> tuple[Array, Array]:
    """Scale and zero point of each row; zero is always a code."""
    low, high = levels
    bottom, top = np.minimum(rows.min(axis=1), 0), np.maximum(rows.max(axis=1), 0)
    spread = np.where(top > bottom, top - bottom, high - low)

    def grid(part: float) -> tuple[Array, Array]:
        scale = _rounded(np.float32(part) * spread / (high - low), scale_dtype)
        zero = np.clip(np.rint(low - np.float32(part) * bottom / scale.astype(np.float32)), low, high)
        return scale, zero.astype(np.int8)

    best, zeros = grid(1.0)
    if method != "mse":
        return best, zeros
    least = np.full(len(rows), np.inf)
    for part in np.linspace(SMALLEST, 1.0, CANDIDATES):
        scale, zero = grid(float(part))
        step, shift = scale.astype(np.float32)[:, None], zero[:, None]
        codes = np.clip(np.rint(rows / step) + shift, low, high)
        error = np.square((codes - shift) * step - rows).sum(axis=1)
        is_less = error < least
        best, zeros = np.where(is_less, scale, best), np.where(is_less, zero, zeros)
        least = np.minimum(error, least)
    return best, zeros


def _rounded(scale: Array, dtype: str) -> Array:
    """To the dtype that is stored, never to zero or infinity."""
    if dtype == "float32":
        return np.asarray(scale, np.float32)
    facts = np.finfo(np.float16)
    return np.clip(scale, float(facts.smallest_subnormal), float(facts.max)).astype(np.float16)


def activation_parameters(low: float, high: float, dtype: str) -> tuple[np.float32, int]:
    """Scale and zero point of a range; zero is always a code."""
    least, largest = (0, 255) if dtype == "uint8" else (-128, 127)
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32((high - low) / (largest - least))
    if not np.isfinite(scale) or scale < np.finfo(np.float32).tiny:
        return np.float32(1.0), 0 if dtype == "int8" or low >= 0 else largest
    zero = int(np.clip(np.rint(least - low / float(scale)), least, largest))
    return scale, zero


def narrow_float(array: Array, dtype: str) -> Array:
    """The nearest numbers of a 16-bit float; finite ones stay finite, as a mask of -3.4e38 has to."""
    kind = np.dtype(np.float16) if dtype == "float16" else np.dtype(ml_dtypes.bfloat16)
    largest = float(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call] # its stub leaves it untyped
    with np.errstate(over="ignore"):
        clipped = np.where(np.isfinite(array), np.clip(array, -largest, largest), array)
        return np.asarray(clipped.astype(kind))


def beyond(array: Array, dtype: str) -> int:
    """How many finite numbers the dtype cannot hold."""
    largest = 65504.0 if dtype == "float16" else 3.3895313892515355e38
    return int((np.isfinite(array) & (np.abs(array) > largest)).sum())
