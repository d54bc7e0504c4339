"""Operators are found by domain and name."""

from __future__ import annotations

from cuvil_build.kernel.nest import ANCHORS
from cuvil_build.ops.catalog import all_operators, find


def test_operators_are_found_in_the_default_domain() -> None:
    conv = find("", "Conv")
    assert conv is not None and conv.name == "Conv"
    assert find("ai.onnx", "Conv") is conv


def test_unknown_operators_are_none() -> None:
    assert find("", "NoSuchOperator") is None
    assert find("com.example", "Conv") is None


def test_operators_are_listed_once_and_sorted() -> None:
    keys = [op.key for op in all_operators()]
    assert keys == sorted(set(keys))


def test_kinds_are_anchors_or_views() -> None:
    assert {op.kind for op in all_operators()} <= {*ANCHORS, "view"}
