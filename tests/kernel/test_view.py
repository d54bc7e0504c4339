"""Views re-index lazily."""

from __future__ import annotations

import numpy as np
import pytest

from cuvil_build.cuir.dtypes import FLOAT32, INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import INPUT, Buffer, Const, Load, Within
from cuvil_build.kernel.view import (
    View,
    concatenate,
    expand,
    is_affine_reshape,
    of_buffer,
    of_constant,
    of_contents,
    reshape,
    reshape_groups,
    transpose,
    within,
)


def shape(text: str) -> tuple[IntExpr, ...]:
    return tuple(IntExpr.parse(part) for part in text.split())


def view(text: str) -> View:
    dims = shape(text)
    return of_buffer(Buffer("x", FLOAT32, dims, tuple(range(len(dims))), INPUT))


def index(found: View, *entries: str) -> list[str]:
    load = found.at(tuple(IntExpr.of(e) for e in entries))
    assert isinstance(load, Load)
    return [str(i) for i in load.index]


@pytest.mark.parametrize(
    ("source", "target", "groups"),
    [
        ("2 12", "2 3 4", [([0], [0]), ([1], [1, 2])]),
        ("b s 768", "b*s 768", [([0, 1], [0]), ([2], [1])]),
        ("b s 768", "b s 12 64", [([0], [0]), ([1], [1]), ([2], [2, 3])]),
        ("4 6", "6 4", [([0, 1], [0, 1])]),
        ("1 5 1", "5", [([1], [0])]),
        ("1", "1 1", []),
    ],
)
def test_reshape_is_matched_in_groups(
    source: str, target: str, groups: list[tuple[list[int], list[int]]]
) -> None:
    assert reshape_groups(shape(source), shape(target)) == groups


def test_affine_reshapes_are_told_from_others() -> None:
    assert is_affine_reshape(shape("b s 768"), shape("b*s 12 64"))
    assert not is_affine_reshape(shape("4 6"), shape("6 4"))


def test_split_dims_are_affine_and_merged_ones_divide() -> None:
    assert index(reshape(view("2 12"), shape("2 3 4")), "a", "b", "c") == ["a", "4*b + c"]
    assert index(reshape(view("2 3 4"), shape("2 12")), "a", "b") == ["a", "(b // 4)", "(b % 4)"]


def test_transpose_and_expand_move_the_index() -> None:
    assert index(transpose(view("2 3 4"), (2, 0, 1)), "a", "b", "c") == ["b", "c", "a"]
    assert index(expand(view("3 1"), shape("2 3 4")), "a", "b", "c") == ["b", "0"]


def test_same_index_gives_the_same_object() -> None:
    moved = transpose(view("2 3"), (1, 0))
    entries = (IntExpr.of("a"), IntExpr.of("b"))
    assert moved.at(entries) is moved.at(entries)


def test_small_constants_are_chosen_by_index() -> None:
    table = of_constant(np.array([3, 5]), INT64)
    assert table.at((IntExpr.of(1),)) == Const(5, INT64)
    contents = np.array([IntExpr.of("s"), IntExpr.of(2)], dtype=object)
    assert of_contents(contents, INT64).at((IntExpr.of(1),)) == Const(2, INT64)


def test_conditions_that_always_hold_are_dropped() -> None:
    value, other = Const(1.0, FLOAT32), Const(0.0, FLOAT32)
    zero, two, three = (IntExpr.of(n) for n in (0, 2, 3))
    assert within([(zero, two, three)], value, other) is value
    inner = Within(((zero, IntExpr.of("i"), two),), value, other)
    merged = within([(zero, IntExpr.of("j"), two)], inner, other)
    assert isinstance(merged, Within) and len(merged.conditions) == 2


def test_concatenation_knows_its_parts() -> None:
    joined = concatenate([view("2 3"), view("2 s")], 1, shape("2 s+3"))
    assert [str(part.offset[1]) for part in joined.parts] == ["0", "3"]
