"""What counts as equal, and where two runs depart first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from cuvil_build.comparison import MeaninglessTolerance, Tolerance, compare, first_departure
from cuvil_build.reference import reference_source


def chain() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 4] x) => (float[n, 4] y) <float[4] w = {1, 2, 3, 4}>
        { a = Mul(x, w)  b = Exp(a)  y = Relu(b) }"""
    )


def floats(*values: float) -> dict[str, Any]:
    return {"y": np.array(values, np.float32)}


@pytest.mark.parametrize(
    ("have", "want", "said"),
    [
        (floats(1.0, 100.009), floats(1.0, 100.0), ""),
        (floats(1.02, 100.0), floats(1.0, 100.0), "error 0.0002 of the magnitude 100"),
        (floats(np.nan, 1.0), floats(np.nan, 1.0), ""),
        (floats(1.0, np.nan), floats(np.nan, 1.0), "2 NaN or Inf in other places"),
        (floats(np.inf, 1.0), floats(np.inf, 1.0), ""),
        (floats(-np.inf, 1.0), floats(np.inf, 1.0), "1 NaN or Inf in other places"),
        (floats(0.0, 0.0), floats(0.0, 0.0), ""),
        (floats(0.0, 1e-3), floats(0.0, 0.0), "error 1e"),
        (floats(1.0), floats(1.0, 1.0), "has shape (1,), expected (2,)"),
        ({"y": np.array([1.0])}, floats(1.0), "is float64, expected float32"),
        ({}, floats(1.0), "is missing"),
        ({**floats(1.0), "z": np.ones(1)}, floats(1.0), "z: is not a value of the reference"),
        (
            {"y": np.array([1, 2, 4])},
            {"y": np.array([1, 2, 3])},
            "1 of 3 elements differ, first at (2,): 4 for 3",
        ),
        ({"y": np.array([True])}, {"y": np.array([False])}, "1 of 1 elements differ"),
        ({"y": np.zeros((0, 3), np.float32)}, {"y": np.zeros((0, 3), np.float32)}, ""),
        ({"y": np.array(2.0, np.float32)}, {"y": np.array(1.0, np.float32)}, "error 1 of"),
    ],
)
def test_compare(have: dict[str, Any], want: dict[str, Any], said: str) -> None:
    result = compare(have, want)
    assert result.passed is (said == "")
    assert said in result.describe()


def test_worst_is_the_largest_relative_error() -> None:
    result = compare(floats(1.0, 100.001), floats(1.0, 100.0))
    assert result.worst == pytest.approx(1e-5, rel=0.05)
    assert compare(floats(np.nan), floats(1.0)).worst == float("inf")


@pytest.mark.parametrize("limit", [1.0, 100.0, -1e-3, float("nan")])
def test_meaningless_tolerance_is_refused(limit: float) -> None:
    with pytest.raises(MeaninglessTolerance):
        Tolerance(limit)


def test_first_departure_is_the_first_in_order() -> None:
    model = chain()
    feeds = {"x": np.full((2, 4), 0.5, np.float32)}
    honest = reference_source(model, feeds)

    def wrong(names: Sequence[str]) -> Mapping[str, Any]:
        values = dict(honest(names))
        return {n: v * np.float32(1.01) if n in ("b", "y") else v for n, v in values.items()}

    found = first_departure(model, wrong, honest, at_once=1)
    assert found is not None
    assert (found.difference.name, found.op) == ("b", "Exp")
    assert "have float32[2, 4] from" in str(found)
    assert first_departure(model, honest, honest) is None


def test_values_that_one_side_lacks_are_skipped() -> None:
    model = chain()
    honest = reference_source(model, {"x": np.ones((1, 4), np.float32)})

    def only_y(names: Sequence[str]) -> Mapping[str, Any]:
        return {n: v + 1 for n, v in honest(names).items() if n == "y"}

    found = first_departure(model, only_y, honest)
    assert found is not None and found.difference.name == "y"


def test_narrow_floats_may_go_apart_by_their_last_place() -> None:
    want = np.array([1.0, 0.5], np.float16)
    for off, passes in ((0.0005, True), (0.001, True), (0.003, False)):
        have = (want.astype(np.float32) + np.float32(off)).astype(np.float16)
        assert compare({"y": have}, {"y": want}).passed is passes, off
        wide = compare({"y": have.astype(np.float32)}, {"y": want.astype(np.float32)})
        assert wide.passed == bool((have == want).all())


def test_a_ratio_of_signal_to_error_is_enough_where_it_is_asked_for() -> None:
    want = np.arange(1, 1001, dtype=np.float32)
    have = want.copy()
    have[0] += 8  # 67 dB, and more than 1e-4 of the largest
    assert not compare({"y": have}, {"y": want}).passed
    assert compare({"y": have}, {"y": want}, Tolerance(least_sqnr=40)).passed
    assert not compare({"y": have}, {"y": want}, Tolerance(least_sqnr=80)).passed
    have[0] = np.nan
    assert not compare({"y": have}, {"y": want}, Tolerance(least_sqnr=40)).passed


def test_bytes_may_be_a_quantum_apart_where_it_is_allowed() -> None:
    want = np.array([0, 7, 255], np.uint8)
    near, far = np.array([1, 6, 254], np.uint8), np.array([2, 7, 255], np.uint8)
    assert not compare({"y": near}, {"y": want}).passed
    assert compare({"y": near}, {"y": want}, Tolerance(quantum=1)).passed
    assert not compare({"y": far}, {"y": want}, Tolerance(quantum=1)).passed
    assert not compare(
        {"y": near.astype(np.int32)}, {"y": want.astype(np.int32)}, Tolerance(quantum=1)
    ).passed


def test_bytes_that_are_quantised_twice_are_held_to_the_ratio() -> None:
    want = np.full(1000, 100, np.uint8)
    near, far = want.copy(), want.copy()
    near[0], far[::2] = 103, 120
    limit = Tolerance(least_sqnr=40, quantum=1)
    assert not compare({"y": near}, {"y": want}, limit).passed
    assert compare({"y": near}, {"y": want}, replace(limit, chained=True)).passed
    assert not compare({"y": far}, {"y": want}, replace(limit, chained=True)).passed
