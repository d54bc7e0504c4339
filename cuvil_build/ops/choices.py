"""Integer expressions that choose: signs, equality and positions that are known only when a module runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, IntLike, maximum, minimum

Least = Callable[[IntExpr], "int | None"]
"""The least value of an expression, where it is known."""


def is_negative(value: IntExpr, least: Least) -> IntExpr:
    """1 where it is below zero, else 0."""
    low, high = least(value), least(-1 - value)
    if low is not None and low >= 0:
        return ZERO
    if high is not None and high >= 0:
        return ONE
    # in this order, nothing overflows for any int64
    return -minimum(maximum(value, -1), 0)


def is_equal(left: IntLike, right: IntLike) -> IntExpr:
    """1 where both are the same number, else 0."""
    gap = IntExpr.of(left) - right
    if gap.is_static:
        return ONE if gap.value == 0 else ZERO
    return 1 - minimum(maximum(gap, -gap), 1)


def from_end(position: IntExpr, extent: IntExpr, least: Least) -> IntExpr:
    """A position that counts from the end where it is negative."""
    return position + extent * is_negative(position, least)


def chosen(choice: IntExpr, then: IntLike, otherwise: IntLike) -> IntExpr:
    """`then` where the choice is 1, `otherwise` where it is 0."""
    if choice == ZERO:
        return IntExpr.of(otherwise)
    if choice == ONE:
        return IntExpr.of(then)
    return choice * (IntExpr.of(then) - otherwise) + otherwise


def named_axes(axes: Sequence[IntExpr], rank: int, least: Least) -> list[IntExpr]:
    """For each axis of a tensor, 1 where the list names it, else 0."""
    positions = [from_end(axis, IntExpr.of(rank), least) for axis in axes]
    return [sum((is_equal(p, d) for p in positions), ZERO) for d in range(rank)]
