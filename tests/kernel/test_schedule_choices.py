"""Schedules from outside: what can be chosen for a nest is right, and nothing else is accepted."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cuvil_build.codegen.kernels import EmittedKernel, emit_kernel, kernel_choices, kernel_key
from cuvil_build.errors import CuvilError, Internal, InvalidValue
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.flat import flatten
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.schedule import GroupSchedule, Schedule
from cuvil_build.kernel.schedule_choices import Choices, loop_choices
from cuvil_build.kernel.schedule_values import changed_fields, from_values, to_values
from cuvil_build.kernel.schedule_words import in_words
from cuvil_build.kernel.tile_schedule import TileSchedule
from tests.kernel import nests
from tests.kernel.harness import WIDE, Case, compile_zig, distinct, run_case
from tests.kernel.test_tiles import convolution, dense

SIZES = ({"n": 1}, {"n": 7}, {"n": 23})
PLANES = ({"n": 1, "h": 1, "w": 1}, {"n": 2, "h": 5, "w": 9}, {"n": 1, "h": 9, "w": 20})
CASES = (
    Case("dense, free rows", dense("n", 33, 40), SIZES, 1e-5),
    Case("borders", convolution(9, 10, 3, pad=1), PLANES, 1e-5),
    Case("softmax", nests.softmax("m"), ({"n": 3, "m": 1}, {"n": 2, "m": 37}), 1e-5),
    Case("depthwise", nests.depthwise(nests.NHWC), PLANES, 1e-5),
    Case("exp", nests.map_of("exp"), ({"n": 0}, {"n": 5}, {"n": 4000}), 1e-5),
    Case("sums of rows", nests.layer_norm("m"), ({"n": 3, "m": 5}, {"n": 4, "m": 300}), 1e-4),
)
TILES = TileSchedule("direct", 6, 2, 8, 96, 3, 4)
LOOPS = Schedule(("i1", "i0"), 1, "i2", 8, 0, (GroupSchedule(0, 0), GroupSchedule(1, 2)), True, "i0", 4)


def choices_of(nest: Nest) -> Choices:
    (found,) = kernel_choices(nest, WIDE)
    assert found is not None
    return found


def by_every_choice(case: Case) -> list[EmittedKernel]:
    key = kernel_key(case.nest, WIDE)
    found = [
        emit_kernel(case.nest, None, numbers=WIDE, tuned={key: {0: schedule}})
        for schedule in choices_of(case.nest).others
    ]
    assert all(kernel.key == key for kernel in found)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_schedule_that_can_be_chosen_is_right(case: Case, tmp_path: Path) -> None:
    kernels = by_every_choice(case)
    usual = emit_kernel(case.nest, None, numbers=WIDE)
    assert {k.spec.symbol for k in kernels} - {usual.spec.symbol}, "nothing to choose from"
    library = ctypes.CDLL(str(compile_zig(distinct(kernels), tmp_path)))
    for kernel in {k.spec.symbol: k for k in kernels}.values():
        run_case(case, kernel, library)


def test_the_usual_schedule_is_what_is_emitted_without_one() -> None:
    for case in CASES:
        usual = choices_of(case.nest).usual
        (part,) = emit_kernel(case.nest, None, numbers=WIDE).parts
        assert part.schedule == usual and not part.is_tuned
        key = kernel_key(case.nest, WIDE)
        given = emit_kernel(case.nest, None, numbers=WIDE, tuned={key: {0: usual}})
        assert given.spec == emit_kernel(case.nest, None, numbers=WIDE).spec


def test_a_schedule_for_one_kernel_leaves_others_alone() -> None:
    one, two = dense("n", 33, 40), dense("n", 34, 40)
    tuned = {kernel_key(one, WIDE): {0: choices_of(one).others[0]}}
    assert emit_kernel(one, None, numbers=WIDE, tuned=tuned).spec != emit_kernel(one, None, numbers=WIDE).spec
    assert emit_kernel(two, None, numbers=WIDE, tuned=tuned).spec == emit_kernel(two, None, numbers=WIDE).spec


@pytest.mark.parametrize("schedule", [TILES, LOOPS], ids=["tiles", "loops"])
def test_a_schedule_survives_plain_values(schedule: TileSchedule | Schedule) -> None:
    assert from_values(to_values(schedule)) == schedule


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row_tile": -1}, "'row_tile' of a schedule is not a right int"),
        ({"row_tile": True}, "'row_tile'"),
        ({"row_tile": "6"}, "'row_tile'"),
        ({"row_tile": 1 << 40}, "'row_tile'"),
        ({"mode": "x" * 1000}, "'mode'"),
        ({"kind": "other"}, "the kind of a schedule"),
        ({"speed": 9}, "has speed"),
    ],
)
def test_values_that_are_no_schedule_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        from_values({**to_values(TILES), **changes})


def test_values_of_another_shape_are_refused() -> None:
    missing = {name: value for name, value in to_values(TILES).items() if name != "unroll"}
    nested = {**to_values(LOOPS), "groups": [{"first": 0}]}
    for values in (missing, nested, {**to_values(LOOPS), "loops": "i0"}, [], None, "tiles"):
        with pytest.raises(InvalidValue):
            from_values(values)


def test_only_what_can_be_chosen_fits() -> None:
    nest = dense("n", 33, 40)
    choices = choices_of(nest)
    assert isinstance(choices.usual, TileSchedule)
    assert choices.why_unfit(choices.usual) == "" and choices.why_unfit(choices.others[-1]) == ""
    large = replace(choices.usual, row_tile=40, vectors=4)
    assert "row_tile 40" in choices.why_unfit(large)
    assert choices.why_unfit(LOOPS) == "it is for another kind of kernel"
    with pytest.raises(Internal, match="was not checked"):
        emit_kernel(nest, None, numbers=WIDE, tuned={kernel_key(nest, WIDE): {0: large}})


def test_an_axis_that_carries_something_is_never_a_vector() -> None:
    nest = nests.running_sum()
    carried = flatten(nest, analyse(nest)).carried
    loops = loop_choices(nest, WIDE)
    found = [s for s in (loops.usual, *loops.others) if isinstance(s, Schedule)]
    assert carried and len(found) > 1
    assert all(s.vector not in carried and not carried & set(s.loops) for s in found)


def test_tiles_stay_within_the_registers() -> None:
    found = [s for s in choices_of(dense("n", 33, 400)).others if isinstance(s, TileSchedule)]
    assert len({(s.row_tile, s.vectors) for s in found}) > 5
    assert all(s.row_tile * s.vectors + s.vectors + 1 <= WIDE.vector_registers for s in found)


def test_words_and_changes_name_what_differs() -> None:
    assert in_words(TILES).startswith("tiles of 6 rows x 2 vectors of 8, rows read where they lie")
    assert "4 steps of i0 at once" in in_words(LOOPS) and "a chunk for each i1" in in_words(LOOPS)
    assert in_words(None) == "plain statements"
    assert changed_fields(TILES, replace(TILES, unroll=2)) == {"unroll": (4, 2)}
    assert issubclass(InvalidValue, CuvilError)
