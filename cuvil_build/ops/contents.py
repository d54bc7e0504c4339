"""Shape arithmetic: operators on small integer tensors whose elements are expressions over dims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.ops.operator import InferContext

Contents = NDArray[Any]
Scalar = Callable[..., IntExpr | None]


def array_of(values: Iterable[IntExpr], shape: tuple[int, ...]) -> Contents:
    result = np.empty(shape, dtype=object)
    flat = result.reshape(-1)
    for at, value in enumerate(values):
        flat[at] = IntExpr.of(value)
    return result


def elementwise(function: Scalar) -> Callable[..., Contents | None]:
    """`evaluate` of an elementwise operator: `function(ctx, *elements)`; None: not known."""

    def evaluate(ctx: InferContext, *operands: Contents, **attributes: Any) -> Contents | None:
        arrays = np.broadcast_arrays(*operands)
        values = [
            function(ctx, *map(IntExpr.of, items), **attributes)
            for items in zip(*(a.reshape(-1) for a in arrays))
        ]
        known = [v for v in values if v is not None]
        return array_of(known, arrays[0].shape) if len(known) == len(values) else None

    return evaluate


def truth(value: bool | None) -> IntExpr | None:
    return None if value is None else (ONE if value else ZERO)


def is_true(value: IntExpr) -> bool | None:
    return bool(value.value) if value.is_static else None


def is_less(ctx: InferContext, left: IntExpr, right: IntExpr) -> bool | None:
    # both differences: a dim without an upper bound leaves one of them without any
    if ctx.bounds(right - left)[0] > 0:
        return True
    return False if ctx.bounds(left - right)[0] >= 0 else None


def quotient(ctx: InferContext, left: IntExpr, right: IntExpr) -> IntExpr | None:
    """Truncating division, where it is seen to be floor division."""
    if right == ZERO:
        return None
    if left.is_static and right.is_static:
        return IntExpr.of(_truncated(left.value, right.value))
    if ctx.bounds(left)[0] < 0 or ctx.bounds(right)[0] < 0:
        return None
    return left // right


def _truncated(left: int, right: int) -> int:
    magnitude = abs(left) // abs(right)
    return magnitude if (left < 0) == (right < 0) else -magnitude
