"""Field-by-field differences of ingredients."""

from __future__ import annotations

import pytest

from cuvil_build.plan.why import differences


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a changed: 1 -> 2"]),
        ({"a": 1}, {"a": True}, ["a changed: 1 -> True"]),
        ({}, {"a": {"b": 1}}, ["a added: {'b': 1}"]),
        ({"p": {"q": {"r": 1, "s": 2}}}, {"p": {"q": {"r": 1}}}, ["p.q.s removed: 2"]),
        ({"f": ["-O2", "-g"]}, {"f": ["-O3", "-g"]}, ["f[0] changed: -O2 -> -O3"]),
        ({"f": [1]}, {"f": [1, 2]}, ["f changed: [1] -> [1, 2]"]),
        ({"d": "a" * 64}, {"d": "b" * 64}, ["d changed: aaaaaaaaaaaa -> bbbbbbbbbbbb"]),
        ({"e": None}, {"e": "x"}, ["e changed: None -> x"]),
    ],
)
def test_differences(before: dict[str, object], after: dict[str, object], expected: list[str]) -> None:
    assert [str(change) for change in differences(before, after)] == expected


def test_code_comes_last_and_long_values_are_cut() -> None:
    found = differences({"code": "1", "z": "x" * 99}, {"code": "2", "z": "y"})
    assert [change.field for change in found] == ["z", "code"]
    assert len(str(found[0])) < 90
    assert found[0].to_json() == {"field": "z", "before": "x" * 99, "after": "y"}
