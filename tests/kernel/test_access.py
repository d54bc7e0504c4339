"""Dependences of nests: what may be parallel or a vector, and what may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.canonical import canonicalise
from cuvil_build.kernel.cost import choose_schedule
from cuvil_build.kernel.expr import IndexValue, Load, apply
from cuvil_build.kernel.flat import flatten
from cuvil_build.kernel.nest import Nest
from tests.kernel import nests
from tests.kernel.harness import WIDE
from tests.kernel.nests import axes, buffer, e, load, stage


def shifted(distance: int) -> Nest:
    """y[i] = y[i - distance] + x[i], over whole arrays."""
    x, y = buffer("x", ["n"]), buffer("y", ["n + 8"], "output")
    value = apply("add", load(x, "i"), load(y, e("i") + 8 - distance))
    return Nest("map", axes(i="n"), (stage((), "store", y, ["i + 8"], value),))


def test_axis_without_dependence_is_free() -> None:
    found = analyse(shifted(0))
    assert found.may_be_parallel("i")


@pytest.mark.parametrize("distance", [1, 3, 8])
def test_loop_carried_axis_is_refused(distance: int) -> None:
    nest = shifted(distance)
    found = analyse(nest)
    assert not found.may_be_parallel("i")
    schedule, _ = choose_schedule(flatten(nest, found), WIDE)
    assert schedule.vector is None and schedule.parallel == 0 and schedule.loops == ()


def test_storing_twice_into_one_element_is_a_dependence() -> None:
    x, y = buffer("x", ["n", 4]), buffer("y", ["n"], "output")
    nest = Nest("map", axes(i="n", j=4), (stage((), "store", y, ["i"], load(x, "i", "j")),))
    found = analyse(nest)
    assert found.may_be_parallel("i") and not found.may_be_parallel("j")


def test_halves_that_do_not_meet_are_independent() -> None:
    """Even elements from odd ones: exact sets see that they never touch."""
    y = buffer("y", ["2*n"], "output")
    nest = Nest("map", axes(i="n"), (stage((), "store", y, ["2*i"], load(y, "2*i + 1")),))
    assert analyse(nest).may_be_parallel("i")


def test_overlap_through_division_is_seen() -> None:
    y = buffer("y", ["n"], "output")
    nest = Nest("map", axes(i="n"), (stage((), "store", y, ["i"], load(y, "i // 2")),))
    assert not analyse(nest).may_be_parallel("i")


def test_time_axis_of_a_recurrence_is_carried_and_batch_is_not() -> None:
    found = analyse(nests.recurrence())
    assert found.carried == {"t"}
    assert found.stages[0].reduced == {"k"} and found.may_be_vector(0, "j") and found.may_be_vector(0, "k")


def test_running_sum_within_a_stage_is_no_vector() -> None:
    x, y = buffer("x", ["n", 9]), buffer("y", ["n", 10], "output")
    value = apply("add", load(y, "i", "j"), load(x, "i", "j"))
    nest = Nest("scan", axes(i="n"), (stage(axes(j=9), "store", y, ["i", "j + 1"], value),))
    found = analyse(nest)
    assert found.may_be_parallel("i") and not found.may_be_vector(0, "j")


def test_declared_sequence_without_dependence_is_our_mistake() -> None:
    with pytest.raises(Internal, match="i of a map nest are sequential"):
        analyse(replace(shifted(0), sequential=("i",)))


def test_indirect_read_of_what_is_written_touches_everything() -> None:
    y = buffer("y", ["n"], "output")
    ids = buffer("ids", ["n"], dtype=INT64)
    inside = Load(y, (load(ids, "i"),))
    assert not analyse(Nest("gather", axes(i="n"), (stage((), "store", y, ["i"], inside),))).may_be_parallel(
        "i"
    )


def test_indirect_read_of_an_input_is_free() -> None:
    assert analyse(nests.embedding(4)).carried == frozenset()


def test_reductions_are_recognised() -> None:
    found = analyse(nests.softmax(9))
    assert [s.reduced for s in found.stages] == [{"j"}, frozenset(), {"j"}, frozenset()]
    assert all(not s.carried for s in found.stages)


def test_canonical_nests_forget_names() -> None:
    first, second = nests.map_of("exp", "n"), nests.map_of("exp", "3*batch + 1")
    one, two = canonicalise(first), canonicalise(replace(second, nodes=("/layer/exp",)))
    assert one.digest == two.digest and one.nest == two.nest
    assert one.dims == (IntExpr.of("n"),) and two.dims == (IntExpr.parse("3*batch + 1"),)
    assert canonicalise(nests.map_of("tanh")).digest != one.digest


def test_canonical_dims_keep_what_only_indices_mention() -> None:
    y = buffer("y", ["n"], "output", dtype=INT64)
    nest = Nest("map", axes(i="n"), (stage((), "store", y, ["i"], IndexValue(e("i + past"))),))
    assert [str(d) for d in canonicalise(nest).dims] == ["n", "past"]
