"""Index arithmetic within known extents."""

from __future__ import annotations

import pytest

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.split import find_split, in_range, simplify

EXTENTS = {name: IntExpr.parse(text) for name, text in {"i": "12", "j": "4", "k": "s", "l": "s*6"}.items()}


def parse(text: str) -> IntExpr:
    return IntExpr.parse(text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(4*i + j) // 4", "i"),
        ("(4*i + j) % 4", "j"),
        ("(s*i + k) // s", "i"),
        ("(s*i + k) % s", "k"),
        ("(4*i + j) // 8", "i // 2"),
        ("(4*i + j) % 8", "4*(i % 2) + j"),
        ("i // 12", "0"),
        ("i % 12", "i"),
        ("i // 5", "i // 5"),
        ("(i + 2) // 12", "(i + 2) // 12"),
        ("max(i // 12, j)", "max(0, j)"),
    ],
)
def test_divisions_are_resolved_by_extents(before: str, after: str) -> None:
    assert simplify(parse(before), EXTENTS) == parse(after)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("i // 3", ("i", "3")),
        ("i % 6", ("i", "6")),
        ("l // s", ("l", "s")),
        ("i // 5", None),
        ("(i + 1) // 3", None),
        ("i // 12", None),
        ("s // 2", None),
    ],
)
def test_axes_are_split_where_the_divisor_fits(text: str, found: tuple[str, str] | None) -> None:
    want = None if found is None else (found[0], parse(found[1]))
    assert find_split([parse(text)], EXTENTS) == want


def test_range_is_seen_only_where_it_holds() -> None:
    assert in_range(parse("4*i + j"), parse("48"), EXTENTS)
    assert not in_range(parse("4*i + j"), parse("47"), EXTENTS)
    assert in_range(parse("s*i + k"), parse("12*s"), EXTENTS)
    assert not in_range(parse("i - 1"), parse("12"), EXTENTS)
