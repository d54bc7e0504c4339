"""LabelEncoder of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .compiled import check_compiled
from .harness import Case, check, i64


def encode(x: np.ndarray, **attributes: Any) -> Case:
    return Case("LabelEncoder", [x], attributes, domain="ai.onnx.ml")


NUMBERS = i64(5, 1, 7, -3, 1, 100)
FLOATS = np.array([[0.5, np.nan, 2.0], [7.0, -0.5, 0.5]], np.float32)

CASES = [
    encode(NUMBERS, keys_int64s=[7, 1, -3], values_int64s=[70, 10, 30]),
    encode(NUMBERS, keys_int64s=[7, 1, 5], values_floats=[0.5, 1.5, 2.5], default_float=-1.0),
    encode(FLOATS, keys_floats=[0.5, 2.0, float("nan")], values_int64s=[1, 2, 3], default_int64=9),
    encode(FLOATS, keys_floats=[2.0], values_floats=[4.0]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)


def test_compiled_kernels_match_onnxruntime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path)
