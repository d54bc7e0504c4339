"""Values of two registers: where polynomials wait for themselves, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuvil_build.cuir.dtypes import FLOAT64
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.cost import choose_schedule
from cuvil_build.kernel.flat import flatten
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers
from tests.kernel import nests
from tests.kernel.harness import WIDE


def lanes(nest: Nest, numbers: Numbers = WIDE) -> int:
    return choose_schedule(flatten(nest, analyse(nest)), numbers)[0].lanes


@pytest.mark.parametrize("function", ["exp", "log", "sigmoid", "tanh", "erf"])
def test_functions_that_wait_for_their_own_steps_take_two(function: str) -> None:
    assert lanes(nests.map_of(function)) == 16


@pytest.mark.parametrize("function", ["neg", "sqrt", "sin", "cos", "tan"])
def test_cheap_functions_and_those_that_need_many_registers_take_one(function: str) -> None:
    assert lanes(nests.map_of(function)) == 8


def test_few_registers_short_axes_and_wide_floats_take_one() -> None:
    assert lanes(nests.map_of("exp"), replace(WIDE, vector_registers=8)) == 8
    assert lanes(nests.map_of("exp", 12)) == 8
    assert lanes(nests.map_of("exp", dtype=FLOAT64)) == 4
