"""Inputs that are one unit in the last place away: what they change, no comparison can hold a module to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]


def nudges(inputs: Arrays, count: int) -> Iterator[dict[str, np.ndarray]]:
    """Every float of the inputs, up or down as a seed says; integers stay."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        yield {name: _nudged(array, rng) for name, array in sorted(inputs.items())}


def _nudged(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    towards = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    return np.asarray(np.nextafter(array, towards))
