"""Golden files keep inputs and outputs exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cuvil_build.bundle.golden import GoldenCase, read_golden, write_golden
from cuvil_build.cuir.dtypes import DTYPES
from cuvil_build.errors import InvalidGolden


def test_cases_come_back_as_they_were(tmp_path: Path) -> None:
    cases = [
        GoldenCase(
            {
                "image/x": np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1),
                "flag": np.array([True, False]),
            },
            {"length": np.array(7, dtype=np.int64), "empty": np.zeros((0, 3), np.float16)},
        )
        for _ in range(11)
    ]
    cases[10].inputs["flag"][0] = False
    write_golden(tmp_path / "g", cases)
    back = read_golden(tmp_path / "g")
    assert len(back) == 11
    for expected, got in zip(cases, back):
        for mine, theirs in ((expected.inputs, got.inputs), (expected.outputs, got.outputs)):
            assert sorted(mine) == sorted(theirs)
            for name, array in mine.items():
                assert theirs[name].dtype == array.dtype
                np.testing.assert_array_equal(theirs[name], array)
                assert theirs[name].shape == array.shape


def test_order_of_names_does_not_reach_the_file(tmp_path: Path) -> None:
    a, b = np.zeros(3, np.float32), np.ones(2, np.int64)
    write_golden(tmp_path / "1", [GoldenCase({"a": a, "b": b}, {})])
    write_golden(tmp_path / "2", [GoldenCase({"b": b, "a": a}, {})])
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_other_safetensors_files_are_refused(tmp_path: Path) -> None:
    save_file({"w": np.zeros(1)}, tmp_path / "g")
    with pytest.raises(InvalidGolden, match="'w'"):
        read_golden(tmp_path / "g")


def test_dtypes_that_numpy_lacks_come_back(tmp_path: Path) -> None:
    arrays = {
        name: np.resize(np.array([1.0, 1.0, 0.5]), (3, 5)).astype(dtype.numpy)
        for name, dtype in DTYPES.items()
        if dtype.is_stored_only
    }
    write_golden(tmp_path / "golden.safetensors", [GoldenCase(arrays, {})])
    (case,) = read_golden(tmp_path / "golden.safetensors")
    for name, array in arrays.items():
        assert case.inputs[name].dtype == array.dtype
        np.testing.assert_array_equal(case.inputs[name].astype(np.float32), array.astype(np.float32))
