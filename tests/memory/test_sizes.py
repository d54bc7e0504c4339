"""Sizes that memory is planned for."""

from __future__ import annotations

from cuvil_build.cuir.dims import DimSpec, FreeDim
from cuvil_build.memory.sizes import ASSUMED, size_points


def dims(**specs: DimSpec) -> dict[str, FreeDim]:
    return {name: FreeDim(name, spec, ("x", axis)) for axis, (name, spec) in enumerate(specs.items())}


def test_the_largest_sizes_come_first_then_typical_ones() -> None:
    points = size_points(dims(batch=DimSpec(1, 32, (1, 8)), seq=DimSpec(1, 512, (128,))))
    assert points[0] == {"batch": 32, "seq": 512}
    assert points[1:3] == [{"batch": 1, "seq": 128}, {"batch": 8, "seq": 128}]
    assert {"batch": 1, "seq": 1} in points and {"batch": 1, "seq": 512} in points


def test_sizes_are_assumed_where_nothing_is_said() -> None:
    points = size_points(dims(batch=DimSpec(), seq=DimSpec(multiple_of=48)))
    assert points[0] == {"batch": ASSUMED, "seq": 96}
    assert all(point["seq"] % 48 == 0 for point in points)
    assert {point["seq"] for point in points if point["batch"] == 1} >= {48, 96, 288, 1056}


def test_nothing_is_below_the_least_or_above_the_largest() -> None:
    points = size_points(dims(n=DimSpec(100, 300), m=DimSpec(7, None)))
    assert all(100 <= point["n"] <= 300 and point["m"] >= 7 for point in points)


def test_points_are_different_and_there_is_one_without_dims() -> None:
    assert size_points({}) == [{}]
    points = size_points(dims(n=DimSpec(1, 2)))
    assert len(points) == len({tuple(p.items()) for p in points})
