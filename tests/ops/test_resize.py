"""Resize: every coordinate and rounding rule."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from .harness import Case, check, f32, i64

X = f32(1, 2, 4, 5)
UP, DOWN, ODD = (np.array(s, dtype=np.float32) for s in ([1, 1, 2, 3], [1, 1, 0.5, 0.75], [1, 1, 1.5, 2.25]))
COORDINATES = "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric".split()
ROUNDINGS = "round_prefer_floor round_prefer_ceil floor ceil".split()


def resized(
    scales: np.ndarray | None, sizes: np.ndarray | None = None, x: np.ndarray = X, **rest: object
) -> Case:
    return Case("Resize", [x, None, scales, sizes] if sizes is not None else [x, None, scales], rest, [2, 3])


CASES = [
    *(
        resized(s, coordinate_transformation_mode=c, nearest_mode=r)
        for s, c, r in product((UP, DOWN), COORDINATES, ROUNDINGS)
    ),
    *(
        resized(s, mode="linear", coordinate_transformation_mode=c)
        for s, c in product((UP, DOWN, ODD), COORDINATES)
    ),
    resized(None, i64(1, 2, 7, 3), coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    resized(None, i64(1, 2, 7, 3), mode="linear"),
    resized(None, i64(1, 2, 1, 1), mode="linear", coordinate_transformation_mode="align_corners"),
    resized(np.array([2, 2], dtype=np.float32), axes=[2, 3]),
    resized(np.ones(4, dtype=np.float32)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
