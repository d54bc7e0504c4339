"""What counts as the expected outputs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.conformance.similar import difference

ONE = np.ones((2, 3), np.float32)


def test_equal_outputs_have_no_difference() -> None:
    assert difference([ONE, ONE[0]], [ONE.copy(), ONE[0] * 1.0005], 1e-3, 0) == ""
    nan = np.array([np.nan, np.inf, -np.inf])
    assert difference([nan], [nan.copy()], 1e-3, 0) == ""


@pytest.mark.parametrize(
    ("given", "wanted", "text"),
    [
        (ONE, ONE[:1], "shape is (2, 3), expected (1, 3)"),
        (ONE, ONE.astype(np.float64), "dtype is float32, expected float64"),
        (ONE, ONE * 1.002, "Not equal to tolerance"),
        (np.array([np.nan]), np.array([1.0]), "nan location mismatch"),
        (np.array([3], np.uint8), np.array([4], np.uint8), "Not equal to tolerance"),
        (np.array([True]), np.array([False]), "Not equal to tolerance"),
        (np.zeros((0, 2)), np.zeros((2, 0)), "shape is"),
    ],
)
def test_differences_are_named(given: np.ndarray, wanted: np.ndarray, text: str) -> None:
    said = difference([given], [wanted], 1e-3, 1e-7)
    assert said.startswith("output 0: ") and text in said


def test_small_floats_compare_by_value() -> None:
    one = np.array([1, 2], ml_dtypes.bfloat16)
    near = np.array([1 + 2**-7, 2], ml_dtypes.bfloat16)
    far = np.array([1 + 2**-5, 2], ml_dtypes.bfloat16)
    assert difference([one], [near], 1e-3, 0) == ""
    assert difference([one], [far], 1e-3, 0)
    four = np.array([1, -3], ml_dtypes.int4)
    assert difference([four], [four.copy()], 0, 0) == ""
    assert difference([four], [four + np.array(1, ml_dtypes.int4)], 0, 0)


def test_a_missing_output_is_a_difference() -> None:
    assert difference([ONE], [ONE, ONE], 1e-3, 0) == "1 outputs, expected 2"
