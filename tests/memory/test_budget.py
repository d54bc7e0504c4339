"""Budgets: what a module takes against what is allowed, and what is to blame."""

from __future__ import annotations

import pytest

from cuvil_build.errors import ManyErrors
from cuvil_build.memory.budget import BudgetNeedsBound, OverBudget, check_budget
from tests.memory.plans import small_plan

NEEDS: dict[str, int | None] = {"arena": 3584, "stack": 1000, "weights": 10}


def test_what_fits_exactly_passes() -> None:
    check_budget({"arena": 3584, "stack": 1000, "weights": 10}, NEEDS, small_plan(), "x64")
    check_budget({}, NEEDS, small_plan(), "x64")


def test_one_byte_too_many_names_what_is_alive_at_the_peak_largest_first() -> None:
    with pytest.raises(OverBudget) as caught:
        check_budget({"arena": 3583}, NEEDS, small_plan(), "x64")
    assert str(caught.value) == (
        "error[over-budget]: the arena takes 3,584 bytes, and 3,583 are allowed: 1 too many\n"
        "  3,584 bytes are alive at once at conv2 with batch = 8:\n"
        "    2,048  sum, made by conv2\n"
        "    1,024  a_flat, made by conv1, relu1\n"
        "      512  b, made by conv2\n"
        "  hint: the budget is 'targets.x64.memory'; 'cuvil explain memory' draws the plan"
    )
    assert caught.value.exit_code == 1


def test_gaps_are_to_blame_as_well() -> None:
    plan = small_plan() | {"arena": "128*batch + at1"}
    with pytest.raises(OverBudget, match="and 512 more are gaps that no value fits into"):
        check_budget({"arena": 1}, {**NEEDS, "arena": 512 * 8}, plan, "x64")


def test_of_many_small_blocks_the_last_are_summed_up() -> None:
    plan = small_plan()
    plan["blocks"] += [
        {"name": f"s{i}", "bytes": "64", "first": 2, "last": 2, "offset": f"at1 + {64 * i}"} for i in range(9)
    ]
    with pytest.raises(OverBudget) as caught:
        check_budget({"arena": 1}, NEEDS, plan, "x64")
    assert "s4, made by conv2\n      256  in 4 smaller ones\n" in str(caught.value)


def test_each_limit_that_is_broken_is_reported() -> None:
    with pytest.raises(ManyErrors) as caught:
        check_budget({"stack": 999, "weights": 9, "arena": 9999}, NEEDS, small_plan(), "x64")
    assert [error.message for error in caught.value.errors] == [
        "the stack takes 1,000 bytes, and 999 are allowed: 1 too many",
        "the weights take 10 bytes, and 9 are allowed: 1 too many",
    ]


def test_a_budget_needs_a_maximum() -> None:
    with pytest.raises(BudgetNeedsBound, match="dim 'batch' has none"):
        check_budget({"arena": 10**9}, {**NEEDS, "arena": None}, small_plan(None), "x64")
    plan = small_plan() | {"heap_values": ["where_1"]}
    with pytest.raises(BudgetNeedsBound, match="data decides those of 'where_1'"):
        check_budget({"arena": 10**9}, {**NEEDS, "arena": None}, plan, "x64")
