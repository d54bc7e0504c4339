"""Chooses the range of an activation from what samples showed: its ends, or a histogram."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Range: TypeAlias = tuple[float, float]

BINS = 2048
LEVELS = 256
TRIED = 100
SMALLEST = 0.02
"""Ranges that are compared, from the whole one to this part of it."""


@dataclass(slots=True)
class Seen:
    """What was seen of one value; the histogram spans the ends of all samples."""

    low: float = np.inf
    high: float = -np.inf
    count: int = 0
    squares: float = 0.0
    histogram: Array | None = None

    def ends(self, array: Array) -> None:
        flat = np.asarray(array, np.float32).reshape(-1)
        flat = flat[np.isfinite(flat)]
        if flat.size:
            self.low, self.high = min(self.low, float(flat.min())), max(self.high, float(flat.max()))
            self.count += flat.size
            self.squares += float(np.square(flat, dtype=np.float64).sum())

    def fill(self, array: Array) -> None:
        """Second pass, when the ends are known."""
        if self.histogram is None:
            self.histogram = np.zeros(BINS, np.int64)
        if self.high > self.low:
            flat = np.asarray(array, np.float32).reshape(-1)
            self.histogram += np.histogram(flat[np.isfinite(flat)], BINS, (self.low, self.high))[0]

    @property
    def rms(self) -> float:
        return float(np.sqrt(self.squares / self.count)) if self.count else 0.0


def choose(seen: Seen, method: str, percentile: float = 99.99) -> Range:
    """The range that codes are spread over; values outside saturate."""
    if not seen.count:
        return 0.0, 0.0
    whole = (min(seen.low, 0.0), max(seen.high, 0.0))
    if method == "minmax" or seen.histogram is None or seen.high <= seen.low:
        return whole
    if method == "percentile":
        return _percentile(seen, percentile)
    loss = LOSSES[method]
    edges = np.linspace(seen.low, seen.high, BINS + 1)
    best, least = whole, np.inf
    counts = _without_zeros(seen.histogram, edges) if method == "entropy" else seen.histogram
    for reach in np.linspace(1.0, SMALLEST, TRIED) * max(-whole[0], whole[1]):
        tried = (max(whole[0], -float(reach)), min(whole[1], float(reach)))
        found = loss(counts, edges, tried)
        if found < least:
            best, least = tried, found
    return best


def _percentile(seen: Seen, percentile: float) -> Range:
    assert seen.histogram is not None
    edges = np.linspace(seen.low, seen.high, BINS + 1)
    share = np.cumsum(seen.histogram) / seen.histogram.sum()
    tail = (100 - percentile) / 100 / (1 if seen.low >= 0 or seen.high <= 0 else 2)
    low = edges[np.searchsorted(share, tail, "right")] if seen.low < 0 else 0.0
    high = edges[np.searchsorted(share, 1 - tail, "left") + 1] if seen.high > 0 else 0.0
    return min(float(low), 0.0), max(float(high), 0.0)


def _without_zeros(histogram: Array, edges: Array) -> Array:
    """Zeros of a Relu have a code of their own; as a spike they would hide the shape of the rest."""
    at = int(np.clip(np.searchsorted(edges, 0.0, "right") - 1, 0, BINS - 1))
    counts = histogram.copy()
    beside = [i for i in (at - 1, at + 1) if 0 <= i < BINS]
    counts[at] = min(int(counts[at]), int(max(counts[i] for i in beside)))
    return np.asarray(counts)


def squared_error(histogram: Array, edges: Array, tried: Range) -> float:
    """Of codes spread over the range."""
    centres = (edges[1:] + edges[:-1]) / 2
    step = max((tried[1] - tried[0]) / (LEVELS - 1), 1e-30)
    inside = np.clip(centres, *tried)
    rounding = np.where((centres >= tried[0]) & (centres <= tried[1]), step * step / 12, 0.0)
    return float((histogram * (np.square(centres - inside) + rounding)).sum())


def divergence(histogram: Array, edges: Array, tried: Range) -> float:
    """Kullback-Leibler, of the distribution that codes can show from the one that was seen."""
    centres = (edges[1:] + edges[:-1]) / 2
    step = max((tried[1] - tried[0]) / (LEVELS - 1), 1e-30)
    code = np.clip(np.rint((np.clip(centres, *tried) - tried[0]) / step), 0, LEVELS - 1).astype(np.int64)
    inside = (centres >= tried[0]) & (centres <= tried[1])
    # what saturates counts where it ends up
    seen = np.where(inside, histogram, 0).astype(np.float64)
    ends = np.flatnonzero(inside)
    if not ends.size:
        return np.inf
    seen[ends[0]] += histogram[: ends[0]].sum()
    seen[ends[-1]] += histogram[ends[-1] + 1 :].sum()
    filled = inside & (histogram > 0)
    mass = np.bincount(code[inside], histogram[inside].astype(np.float64), LEVELS)
    width = np.bincount(code[filled], minlength=LEVELS)
    shown = np.where(filled, mass[code] / np.maximum(width[code], 1), 0.0)
    p, q = seen / max(seen.sum(), 1e-30), shown / max(shown.sum(), 1e-30)
    both = p > 0
    return float((p[both] * np.log(p[both] / np.maximum(q[both], 1e-12))).sum())


LOSSES: Mapping[str, Callable[[Array, Array, Range], float]] = {
    "entropy": divergence,
    "mse": squared_error,
}
METHODS = ("minmax", "percentile", *sorted(LOSSES))
