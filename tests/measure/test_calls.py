"""Calls from C: they are made, and the module's own errors come through; never how long they took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cuvil
from cuvil_build.measure import cost_of_calls
from tests.codegen import module_plans as plans

X = np.arange(10, dtype=np.float32).reshape(5, 2)
K = np.zeros((6, 2, 2), np.int64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plans.build(plans.dynamic_plan(), tmp_path_factory.mktemp("calls")).folder


def test_calls_from_c_and_from_python_are_timed(folder: Path) -> None:
    cost = cost_of_calls(folder, {"x?": X, "k": K}, 1, 3)
    assert cost.c_us > 0 and cost.run_us > 0


def test_an_error_of_a_call_from_c_is_the_module_s(folder: Path) -> None:
    with pytest.raises(cuvil.CuvilRuntimeError, match="input 'k': dim 2"):
        cost_of_calls(folder, {"x?": X, "k": np.zeros((6, 2, 3), np.int64)}, 1, 1)
    with pytest.raises(cuvil.CuvilRuntimeError, match="missing input 'k'"):
        cost_of_calls(folder, {"x?": X}, 1, 1)


def test_code_of_the_host_makes_the_call(folder: Path) -> None:
    seen: list[tuple[int, int, int, int]] = []

    def refuse(run: int, context: int, given: int, made: int) -> int:
        seen.append((run, context, given, made))
        return 7

    with cuvil.load(folder) as module:
        with pytest.raises(cuvil.CuvilRuntimeError):
            module.run_through(refuse, {"x?": X, "k": K})
        assert len(seen) == 1 and all(seen[0])
        np.testing.assert_array_equal(module.run({"x?": X, "k": K})["y"], -(X * 2 + 1))
