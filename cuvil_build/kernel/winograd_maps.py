"""The linear maps of Winograd's minimal filtering for 3x3 filters: exact, and applied to constant weights.

F(m, r) gives m outputs of a correlation with r taps from m + r - 1 products (S. Winograd, 1980; A. Lavin and
S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2015). It evaluates polynomials at points, one
of them infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod

import numpy as np

TAPS = 3
Matrix = tuple[tuple[Fraction, ...], ...]

_POINTS = {
    (2, 3): (Fraction(0), Fraction(1), Fraction(-1)),
    (4, 3): (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2)),
    (2, 2): (Fraction(0), Fraction(1)),
}
"""By the outputs of a tile and the taps. For (4, 3), integers (1 and 2) would have 3 times the error; up to
their third powers, these are exact in float32 as well."""

TILES = {1: (2, 4), 2: (2,)}
"""Outputs of the tiles that there are, by stride."""


@dataclass(frozen=True, slots=True)
class Maps:
    """y = output · ((filter · w) * (input · x)), in one dimension."""

    outputs: int
    stride: int
    output: Matrix
    """[output][point]."""
    filter: Matrix
    """[point][tap]."""
    input: Matrix
    """[point][position]; there are as many positions as points."""

    @property
    def points(self) -> int:
        return len(self.input)


@cache
def maps(outputs: int, stride: int = 1) -> Maps:
    """With stride 2, even positions meet the outer taps, and odd ones the inner tap, each once."""
    if stride == 1:
        return Maps(outputs, 1, *_minimal(outputs, TAPS))
    even, kernel, rows = _minimal(outputs, 2)
    zero, one = Fraction(0), Fraction(1)
    units = [tuple(one if k == n else zero for k in range(outputs)) for n in range(outputs)]
    spread = [tuple(v for e in row for v in (e, zero))[:-1] for row in rows]
    return Maps(
        outputs,
        stride,
        tuple((*row, *unit) for row, unit in zip(even, units, strict=True)),
        (*((first, zero, last) for first, last in kernel), *((zero, one, zero) for _ in units)),
        (*spread, *((*(v for u in unit for v in (zero, u)), zero) for unit in units)),
    )


def _minimal(outputs: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """The maps of results, filters and operands of F(outputs, taps)."""
    points = _POINTS[outputs, taps]
    weights = [prod(p - q for q in points if q != p) for p in points]
    output = tuple((*(p**i for p in points), Fraction(int(i == outputs - 1))) for i in range(outputs))
    kernel = [tuple(p**j / weight for j in range(taps)) for p, weight in zip(points, weights, strict=True)]
    kernel.append((*(Fraction(0) for _ in range(taps - 1)), Fraction(1)))
    rows = [(*_polynomial([q for q in points if q != p]), Fraction(0)) for p in points]
    rows.append(_polynomial(points))
    return output, tuple(kernel), tuple(rows)


def _polynomial(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients of the product of (x - root), lowest first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        found = [s - root * f for s, f in zip(shifted, [*found, Fraction(0)], strict=True)]
    return tuple(found)


def transformed_filters(weights: np.ndarray, outputs: int, stride: int = 1) -> np.ndarray:
    """[output channel][input channel][3][3] -> [point][input channel][output channel], rounded once.

    Sums are written out, in double precision: a library's order of additions differs between machines.
    """
    matrix = [[float(v) for v in row] for row in maps(outputs, stride).filter]
    wide = np.ascontiguousarray(weights.transpose(2, 3, 1, 0)).astype(np.float64)
    points = len(matrix)
    found = np.empty((points * points, *wide.shape[2:]), np.float32)
    for a, row in enumerate(matrix):
        left = [_combined(row, [wide[i, j] for i in range(TAPS)]) for j in range(TAPS)]
        for b, column in enumerate(matrix):
            found[a * points + b] = _combined(column, left)
    return found


def _combined(factors: Sequence[float], arrays: Sequence[np.ndarray]) -> np.ndarray:
    total = np.zeros_like(arrays[0])
    for factor, array in zip(factors, arrays, strict=True):
        if factor:
            total += factor * array
    return total
