"""Conditions on loop variables: the loop bounds and the interior regions in which they hold."""

from __future__ import annotations

from collections.abc import Iterable

from cuvil_build.cuir.int_expr import IntExpr, ceil_divide, maximum, minimum
from cuvil_build.kernel.expr import Const
from cuvil_build.kernel.flat import Condition, FlatExpr, FlatNest, FlatStage, FlatWithin, flat_parts
from cuvil_build.kernel.nest import Axis


def neutral(kind: str, dtype_kind: str, bits: int) -> int | float:
    """The value that a reduction starts from."""
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    if dtype_kind == "float":
        return float("-inf") if kind == "max" else float("inf")
    if dtype_kind == "bool":
        return 0 if kind == "max" else 1
    lowest = -(2 ** (bits - 1)) if dtype_kind == "int" else 0
    highest = 2 ** (bits - 1) - 1 if dtype_kind == "int" else 2**bits - 1
    return lowest if kind == "max" else highest


def clipped_conditions(stage: FlatStage) -> dict[str, list[Condition]]:
    """Conditions of a reduction that only skip steps of one reduced axis, by axis.

    The value is `Within(conditions, v, neutral)`, so steps outside add nothing: the loop's bounds say the
    same without a test.
    """
    if not stage.is_reduction or not isinstance(stage.value, FlatWithin):
        return {}
    other, dtype = stage.value.otherwise, stage.target.dtype
    start = neutral(stage.kind, dtype.kind, dtype.bits)
    if not isinstance(other, Const) or other.value != start:
        return {}
    found: dict[str, list[Condition]] = {}
    for condition in stage.value.conditions:
        axis = _clip_axis(condition, stage)
        if axis is not None:
            found.setdefault(axis, []).append(condition)
    return found


def _clip_axis(condition: Condition, stage: FlatStage) -> str | None:
    low, index, high = condition
    own = {a.name for a in stage.axes}
    mentioned = index.symbols() & own
    if (low.symbols() | high.symbols()) & own or len(mentioned) != 1:
        return None
    name = next(iter(mentioned))
    factor = index.coefficient(name)
    if factor is None or not factor.is_static or factor.value <= 0 or name not in stage.reduced:
        return None
    return name


def bounds_of(axis: str, conditions: Iterable[Condition]) -> tuple[list[IntExpr], list[IntExpr]]:
    """Lower bounds and upper bounds (exclusive) of `axis` for conditions affine in it."""
    lows: list[IntExpr] = []
    highs: list[IntExpr] = []
    for low, index, high in conditions:
        factor, rest = index.split(axis)
        assert factor is not None and factor.is_static and factor.value > 0
        lows.append(ceil_divide(low - rest, factor))
        highs.append(ceil_divide(high - rest, factor))
    return lows, highs


def clip(axis: Axis, conditions: Iterable[Condition]) -> tuple[IntExpr, IntExpr]:
    """(start, stop) of a loop over the steps where the conditions hold; stop may be below start."""
    lows, highs = bounds_of(axis.name, conditions)
    return maximum(0, *lows), minimum(axis.extent, *highs)


def extremes(condition: Condition, axes: Iterable[Axis]) -> tuple[Condition, ...] | None:
    """Conditions without `axes` that together imply this one for all their steps; None if not affine."""
    low, index, high = condition
    least = most = index
    for axis in axes:
        if axis.name in low.symbols() | high.symbols():
            return None
        factor = least.coefficient(axis.name)
        if factor is None or not factor.is_static:
            return None
        end = axis.extent - 1
        positive = factor.value >= 0
        least = least.substitute({axis.name: 0 if positive else end})
        most = most.substitute({axis.name: end if positive else 0})
    return ((low, least, high),) if least == most else ((low, least, high), (low, most, high))


def assumable(condition: Condition, axes: Iterable[Axis], vector: str) -> bool:
    """Whether a part of the vector axis can be cut off in which the condition holds throughout."""
    parts = extremes(condition, axes)
    if parts is None:
        return False
    for low, index, high in parts:
        factor = index.coefficient(vector)
        if factor is None or not factor.is_static or factor.value < 0:
            return False
        if vector in low.symbols() | high.symbols():
            return False
    return True


def guard_ranges(flat: FlatNest, vector: str) -> dict[Condition, tuple[Condition, ...]]:
    """Conditions that can be tested once outside of the vector axis, with what to test for each."""
    loops = {a.name for a in flat.axes} - {vector}
    found: dict[Condition, tuple[Condition, ...]] = {}
    for stage in flat.stages:
        for condition in conditions_of(stage.value):
            parts = extremes(condition, stage.axes)
            if parts is None:
                continue
            symbols = frozenset().union(*(i.symbols() for part in parts for i in part))
            if vector not in symbols and symbols & loops:
                found[condition] = parts
    return found


def vector_ranges(flat: FlatNest, vector: str) -> dict[Condition, tuple[Condition, ...]]:
    """Conditions on the vector axis, with what must hold of the axis alone."""
    found: dict[Condition, tuple[Condition, ...]] = {}
    for stage in flat.stages:
        for condition in conditions_of(stage.value):
            parts = extremes(condition, stage.axes)
            if parts is not None and any(vector in i.symbols() for part in parts for i in part):
                found[condition] = parts
    return found


def conditions_of(value: FlatExpr) -> list[Condition]:
    found: dict[Condition, None] = {}
    for part in flat_parts([value]):
        if isinstance(part, FlatWithin):
            found.update(dict.fromkeys(part.conditions))
    return list(found)
