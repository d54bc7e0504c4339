"""Where calibration samples come from, and what is wrong with those that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cuvil_build.quantize.calibrate import CalibrationFailed, calibrate
from cuvil_build.quantize.calibration_data import (
    read_files,
    read_function,
    split_batches,
)
from cuvil_build.quantize.project_function import ProjectFunction
from cuvil_build.samples import DimRange, InputSpec, InvalidSamples
from tests.quantize.graphs import fixture

INPUTS: list[InputSpec] = [("x", "float32", ("batch", 3))]
DIMS = {"batch": DimRange(1, 8)}
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_all_three_kinds_of_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=ARRAY)
    np.save(tmp_path / "b.npy", ARRAY)
    save_file({"x": ARRAY}, tmp_path / "c.safetensors")
    found = read_files(sorted(tmp_path.iterdir()), INPUTS, DIMS, 9)
    assert len(found) == 3 and all(np.array_equal(case["x"], ARRAY) for case in found)
    assert len(read_files(sorted(tmp_path.iterdir()), INPUTS, DIMS, 2)) == 2


@pytest.mark.parametrize(("name", "content"), [("a.txt", b""), ("b.safetensors", b"zz"), ("c.npz", b"zz")])
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidSamples):
        read_files([tmp_path / name], INPUTS, DIMS, 9)


def test_one_array_for_several_inputs_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ARRAY)
    with pytest.raises(InvalidSamples, match="one array for the inputs x, y"):
        read_files([tmp_path / "a.npy"], [*INPUTS, ("y", "float32", (3,))], DIMS, 9)


GENERATOR = """
import numpy as np
def many():
    for i in range(1000):
        yield {"x": np.full((1, 3), i, np.float32)}
def arrays():
    yield np.zeros((2, 3), np.float32)
def wrong():
    yield 7
def broken():
    yield 1 / 0
def narrow():
    yield np.zeros((2, 4), np.float32)
"""


def test_functions_of_the_project(tmp_path: Path) -> None:
    file = tmp_path / "calib.py"
    file.write_text(GENERATOR)
    assert len(read_function(file, "many", INPUTS, DIMS, 5)) == 5
    assert read_function(file, "arrays", INPUTS, DIMS, 5)[0]["x"].shape == (2, 3)
    for name, said in (
        ("wrong", "yields int"),
        ("broken", "division by zero"),
        ("manny", "no function 'manny'"),
    ):
        with pytest.raises(ProjectFunction, match=said):
            read_function(file, name, INPUTS, DIMS, 5)
    with pytest.raises(InvalidSamples, match=r"calib\.py:narrow"):
        read_function(file, "narrow", INPUTS, DIMS, 5)


def test_batches_are_cut_into_samples() -> None:
    found = list(split_batches([{"x": np.zeros((10, 3))}], INPUTS, 4))
    assert [case["x"].shape for case in found] == [(1, 3)] * 4
    fixed: list[InputSpec] = [("x", "float32", (10, 3))]
    assert [c["x"].shape for c in split_batches([{"x": np.zeros((10, 3))}], fixed, 4)] == [(10, 3)]


def test_samples_that_never_run() -> None:
    model = fixture("mlp")
    value = str(next(iter(model.graph)).outputs[0].name)
    with pytest.raises(CalibrationFailed):
        calibrate(model, [value], [{name.name: np.zeros((1, 1), np.float32) for name in model.graph.inputs}])
