"""Packing: every element of the operand is where the panel loop will read it, the rest is zero."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.nest import Axis
from cuvil_build.kernel.packing import Packing, pack


def axis(name: str, extent: int) -> Axis:
    return Axis(name, IntExpr.of(extent))


def element(packed: np.ndarray, packing: Packing, batch: int, depth: int, column: int) -> float:
    """As the kernel addresses it."""
    panel, lane = divmod(column, packing.width)
    last = panel == packing.panels - 1
    width = packing.last_width if last else packing.width
    start = batch * packing.columns * packing.depth + panel * packing.width * packing.depth
    return float(packed[start + depth * width + lane])


@pytest.mark.parametrize(
    ("columns", "width", "last"),
    [(16, 16, 16), (24, 16, 8), (5, 16, 8), (33, 16, 8), (1, 4, 4), (48, 16, 16)],
)
def test_matrix_elements_are_found_by_panel_and_depth(columns: int, width: int, last: int) -> None:
    weights = np.arange(7 * columns, dtype=np.float32).reshape(7, columns) + 1
    packing = Packing(
        (), (axis("k", 7),), axis("j", columns), (IntExpr.of("k"), IntExpr.of("j")), width, last
    )
    packed = pack(weights, packing)
    assert packed.size == packing.count
    for k, j in itertools.product(range(7), range(columns)):
        assert element(packed, packing, 0, k, j) == weights[k, j]
    assert float(packed.sum()) == float(weights.sum())


def test_convolution_weights_follow_taps_then_channels() -> None:
    weights = np.random.default_rng(0).random((10, 3, 2, 2), dtype=np.float32)
    index = tuple(IntExpr.of(n) for n in ("co", "ci", "kh", "kw"))
    packing = Packing((), (axis("kh", 2), axis("kw", 2), axis("ci", 3)), axis("co", 10), index, 8, 8)
    packed = pack(weights, packing)
    for co, ci, kh, kw in itertools.product(range(10), range(3), range(2), range(2)):
        assert element(packed, packing, 0, (kh * 2 + kw) * 3 + ci, co) == weights[co, ci, kh, kw]


def test_batches_and_affine_indices() -> None:
    weights = np.random.default_rng(1).random((2, 12, 6), dtype=np.float32)
    # The reduction walks every second row, backwards.
    index = (IntExpr.of("b"), 11 - 2 * IntExpr.of("k"), IntExpr.of("j"))
    packing = Packing((axis("b", 2),), (axis("k", 5),), axis("j", 6), index, 4, 4)
    packed = pack(weights, packing)
    for b, k, j in itertools.product(range(2), range(5), range(6)):
        assert element(packed, packing, b, k, j) == weights[b, 11 - 2 * k, j]
