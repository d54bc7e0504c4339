"""Values between the elements of a tensor, at positions that are computed: weighted taps along each axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import integer
from cuvil_build.ops.scalar import add, call, cast, maximum, minimum, mul, select, sub


@dataclass(frozen=True, slots=True)
class Tap:
    """One element of an axis, and how much of it counts."""

    weight: Expr | None
    """None: all of it."""
    position: Expr
    """Inside of the axis, as int64."""
    is_there: Expr | None = None
    """Whether the position counts at all; None: always."""


def sampled(taps: Sequence[Sequence[Tap]], element: Callable[[tuple[Expr, ...]], Expr]) -> Expr:
    """The sum over all combinations of one tap of each axis, the last axis innermost."""
    return _sampled(taps, element, (), None)


def _sampled(
    taps: Sequence[Sequence[Tap]],
    element: Callable[[tuple[Expr, ...]], Expr],
    position: tuple[Expr, ...],
    is_there: Expr | None,
) -> Expr:
    if not taps:
        value = element(position)
        return value if is_there is None else select(is_there, value, 0.0 if value.dtype.is_float else 0)
    total: Expr | None = None
    for tap in taps[0]:
        inner = _sampled(taps[1:], element, (*position, tap.position), both(is_there, tap.is_there))
        part = inner if tap.weight is None else mul(inner, cast(tap.weight, inner.dtype))
        total = part if total is None else add(total, part)
    assert total is not None
    return total


def both(left: Expr | None, right: Expr | None) -> Expr | None:
    if left is None or right is None:
        return left or right
    return call("and", left, right)


def clamped(position: Expr, extent: IntExpr) -> Expr:
    """Inside of an axis."""
    return maximum(minimum(position, integer(extent - 1, position.dtype)), 0)


def is_inside(position: Expr, extent: IntExpr) -> Expr:
    return call("and", call("ge", position, 0), call("lt", position, integer(extent, position.dtype)))


def whole(x: Expr) -> Expr:
    """The integer below a number."""
    return cast(call("floor", x), INT64)


def cubic_weights(fraction: Expr, a: float) -> list[Expr]:
    """Of the four elements around a position `fraction` behind the second one."""
    return [cubic_weight(add(fraction, n), a) for n in (1.0, 0.0)] + [
        cubic_weight(sub(n, fraction), a) for n in (1.0, 2.0)
    ]


def cubic_weight(distance: Expr, a: float) -> Expr:
    """Keys' kernel at a distance from 0 to 2."""
    x = distance
    near = add(mul(mul(sub(mul(x, a + 2), a + 3), x), x), 1.0)
    far = sub(mul(add(mul(sub(mul(x, a), 5 * a), x), 8 * a), x), 4 * a)
    return select(call("le", x, 1.0), near, far)
