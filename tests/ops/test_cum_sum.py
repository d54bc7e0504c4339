"""CumSum and CumProd."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.errors import ShapeMismatch
from cuvil_build.ops.infer import infer_model

from .compiled import check_compiled
from .harness import Case, check, f32, i64


def running(x: np.ndarray, axis: int, op: str = "CumSum", constant: bool = True, **attributes: int) -> Case:
    return Case(op, [x, np.array(axis)], attributes, constants=[1] if constant else [])


CASES = [
    running(f32(3, 4), 0),
    running(f32(3, 4), 1, exclusive=1),
    running(f32(3, 4), -1, reverse=1),
    running(f32(2, 3, 4), 1, exclusive=1, reverse=1),
    running(f32(2, 3, 4), 0, reverse=1),
    running(f32(5), 0),
    running(f32(0, 3), 0),
    running(f32(1, 3), 0, exclusive=1),
    running(i64(1, 2, 3), 0),
    running(np.ones((2, 3), np.int32), 1, exclusive=1),
    running(f32(3, 4), 1, "CumProd"),
    running(f32(3, 4), 0, "CumProd", exclusive=1, reverse=1),
    running(np.linspace(0, 1, 6), 0),
    *(running(f32(2, 3, 4), axis, constant=False) for axis in (0, 1, -1, -3)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)


def test_an_axis_of_two_numbers_is_refused() -> None:
    model = parse_model(
        "agraph (float[3,4] x) => (float[3,4] y) <int64[2] axis = {0, 1}> { y = CumSum(x, axis) }"
    )
    with pytest.raises(ShapeMismatch, match="axis must be one number, not 2"):
        infer_model(model)
