"""Bounds of integer expressions hold for every value of their symbols."""

from __future__ import annotations

import itertools
import random

import pytest

from cuvil_build.cuir.int_expr import Bounds, IntExpr, maximum, minimum

A, B = IntExpr.of("a"), IntExpr.of("b")


@pytest.mark.parametrize(
    ("expr", "want"),
    [
        (A - 1, (-5, 2)),
        (maximum(minimum(-A, 1), 0), (0, 1)),
        (A * A, (0, 16)),
        (A * B, None),
        (maximum(A * B, 0), (0, None)),
        (minimum(A * B, 7), None),
        (A // 2, (-2, 1)),
        (B // 3 + 1, (1, None)),
        (A % 3, (0, 2)),
        (5 - B, None),
    ],
    ids=str,
)
def test_bounds_of_symbols_that_may_be_negative(expr: IntExpr, want: Bounds | None) -> None:
    assert expr.bounds({"a": (-4, 3), "b": (2, None)}) == want


def test_bounds_hold_for_random_expressions() -> None:
    draw = random.Random(0)
    for _ in range(400):
        expr = _random(draw, 3)
        lows = {name: draw.randint(-3, 3) for name in "abc"}
        known: dict[str, Bounds] = {
            n: (low, draw.choice([None, low + draw.randint(0, 3)])) for n, low in lows.items()
        }
        bounds = expr.bounds(known)
        if bounds is None:
            continue
        steps = [range(low, (low + 5 if high is None else high) + 1) for low, high in known.values()]
        for values in itertools.product(*steps):
            try:
                number = expr.evaluate(dict(zip("abc", values)))
            except ZeroDivisionError:
                continue
            assert bounds[0] <= number and (bounds[1] is None or number <= bounds[1]), f"{expr} at {values}"


def _random(draw: random.Random, depth: int) -> IntExpr:
    if not depth or draw.random() < 0.3:
        return IntExpr.of(draw.choice("abc")) if draw.random() < 0.7 else IntExpr.of(draw.randint(-3, 3))
    left, right = _random(draw, depth - 1), _random(draw, depth - 1)
    operator = draw.choice("+-*/%<>")
    if operator in "/%" and right.is_static and right.value == 0:
        return left
    choices = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left // right,
        "%": lambda: left % right,
        "<": lambda: minimum(left, right),
        ">": lambda: maximum(left, right),
    }
    return choices[operator]()
