"""Resize: every coordinate and rounding rule."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.errors import UnsupportedAttribute

from .compiled import check_compiled
from .harness import Case, check, f32, i64, reference
from .symbolic import check_symbolic

X = f32(1, 2, 4, 5)
UP, DOWN, ODD = (np.array(s, dtype=np.float32) for s in ([1, 1, 2, 3], [1, 1, 0.5, 0.75], [1, 1, 1.5, 2.25]))
COORDINATES = "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric".split()
ROUNDINGS = "round_prefer_floor round_prefer_ceil floor ceil".split()


FRACTIONS = [s for s in COORDINATES if s != "align_corners"]
CUBIC = {"mode": "cubic"}
UNEVEN = np.array([1, 1, 1.5, 2.3], dtype=np.float32)
SMALL = np.array([1, 1, 0.6, 0.8], dtype=np.float32)
ROI = np.array([0, 0, 0.2, -0.1, 1, 1, 0.7, 1.2], dtype=np.float32)


def resized(
    scales: np.ndarray | None, sizes: np.ndarray | None = None, x: np.ndarray = X, **rest: object
) -> Case:
    return Case("Resize", [x, None, scales, sizes] if sizes is not None else [x, None, scales], rest, [2, 3])


def by_evaluator(case: Case) -> None:
    """Where onnxruntime departs from ONNX's own definition, or has less."""
    check(case, evaluator=True, tolerance=1e-5)


CASES = [
    *(
        resized(s, coordinate_transformation_mode=c, nearest_mode=r)
        for s, c, r in product((UP, DOWN), FRACTIONS, ROUNDINGS)
    ),
    *(
        resized(s, mode="linear", coordinate_transformation_mode=c)
        for s, c in product((UP, DOWN, ODD), FRACTIONS)
    ),
    resized(UP, coordinate_transformation_mode="align_corners"),
    resized(UP, mode="linear", coordinate_transformation_mode="align_corners"),
    resized(None, i64(1, 2, 7, 3), coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    resized(None, i64(1, 2, 7, 3), mode="linear"),
    resized(None, i64(1, 2, 7, 3), mode="linear", coordinate_transformation_mode="align_corners"),
    resized(None, i64(1, 2, 1, 1), mode="linear", coordinate_transformation_mode="align_corners"),
    resized(np.array([2, 2], dtype=np.float32), axes=[2, 3]),
    resized(np.ones(4, dtype=np.float32)),
    resized(UP, **CUBIC),
    resized(None, i64(1, 2, 7, 3), **CUBIC),
]
DEFINED = [
    *(
        resized(s, mode=m, coordinate_transformation_mode="align_corners")
        for s, m in product((DOWN, ODD), ("nearest", "linear", "cubic"))
    ),
    *(
        resized(s, mode="cubic", coordinate_transformation_mode=c)
        for s, c in product((UP, SMALL, UNEVEN), COORDINATES)
    ),
    resized(UP, cubic_coeff_a=-0.5, **CUBIC),
    *(resized(s, exclude_outside=1, **CUBIC) for s in (UP, SMALL)),
    *(
        resized(SMALL, mode=m, antialias=1, exclude_outside=e)
        for m, e in product(("linear", "cubic"), (0, 1))
    ),
    resized(UP, mode="linear", antialias=1),
    resized(None, i64(1, 2, 2, 3), mode="linear", antialias=1),
    *(
        resized(None, i64(7, 8), mode=m, axes=[2, 3], keep_aspect_ratio_policy=p)
        for m, p in product(("nearest", "linear"), ("not_larger", "not_smaller"))
    ),
    resized(np.array([1.5, 0.8], dtype=np.float32), axes=[3, 2], **CUBIC),
]
CROPS = [
    Case(
        "Resize",
        [X, ROI, None, i64(1, 2, 3, 4)],
        {"mode": m, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0},
        [1, 3],
    )
    for m in ("nearest", "linear", "cubic")
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case, tolerance=1e-5)


@pytest.mark.parametrize("case", DEFINED, ids=str)
def test_matches_the_definition(case: Case) -> None:
    by_evaluator(case)


@pytest.mark.parametrize("case", CROPS, ids=str)
def test_crops(case: Case) -> None:
    by_evaluator(case)
    at_run_time = Case(case.op, case.inputs, case.attributes)
    check_symbolic(at_run_time, [3], wanted=reference(case, evaluator=True), tolerance=1e-5)


@pytest.mark.parametrize("case", [*CASES[::5], *DEFINED[::3]], ids=str)
def test_scales_and_sizes_that_data_decides(case: Case) -> None:
    wanted = reference(case, evaluator=True)
    symbolic = [3] if len(case.inputs) > 3 else []
    check_symbolic(Case(case.op, case.inputs, case.attributes), symbolic, wanted=wanted, tolerance=1e-5)


@pytest.mark.parametrize("mode", ("linear", "cubic"))
def test_other_dtypes(mode: str) -> None:
    check(resized(UP, x=X.astype(np.float64), mode=mode), evaluator=True)
    check(resized(UP, x=np.arange(40, dtype=np.int32).reshape(1, 2, 4, 5)), evaluator=True)


@pytest.mark.parametrize("mode", ("nearest", "linear"))
def test_upsample(mode: str) -> None:
    wanted = reference(
        resized(UP, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    )
    for constants in ([1], []):
        check_symbolic(Case("Upsample", [X, UP], {"mode": mode}, constants), [], wanted=wanted)


@pytest.mark.parametrize("scale", (np.nan, np.inf))
def test_scales_that_are_not_finite_are_refused(scale: float) -> None:
    scales = np.array([1, 1, scale, 2], dtype=np.float32)
    with pytest.raises(UnsupportedAttribute, match="not finite"):
        check_symbolic(Case("Resize", [X, None, scales], {}, [2]), [], wanted=[X])


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled([*CASES[::9], *CASES[-2:]], tmp_path)
