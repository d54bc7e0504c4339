"""ConstantOfShape with its default and other values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from .harness import Case, check, i64


def full(value: np.ndarray | None, *shape: int) -> Case:
    attributes = {} if value is None else {"value": numpy_helper.from_array(value)}
    return Case("ConstantOfShape", [i64(*shape)], attributes, [0])


CASES = [
    full(None, 2, 3),
    full(np.array([2.5], dtype=np.float32), 4),
    full(np.array([7]), 300, 2),
    full(np.array([True]), 2),
    full(np.array([1]), 0, 3),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_onnxruntime(case: Case) -> None:
    check(case)
