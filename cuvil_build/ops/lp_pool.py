"""LpPool: the p-norm of sliding windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.pool import infer_windows, pool
from cuvil_build.ops.scalar import call, mul, sqrt
from cuvil_build.ops.shapes import FLOATS, require_attribute
from cuvil_build.ops.windows import windows


def infer(ctx: InferContext, x: Known, *, kernel_shape: list[int], p: int = 2, **attributes: Any) -> Known:
    require_attribute(p >= 1, f"p={p}")
    return infer_windows(ctx, x, kernel_shape, **attributes)


def lower(build: NestBuilder, x: View, *, kernel_shape: list[int], p: int = 2, **attributes: Any) -> View:
    found = windows(x.shape[2:], kernel_shape, **attributes)
    return root_of_powers(build, x, p, lambda powers: pool(build, build.operand(powers), found, "sum", 0.0))


def root_of_powers(build: NestBuilder, x: View, p: int, total: Callable[[View], View]) -> View:
    """The p-th root of a sum of p-th powers."""

    def power(value: Expr) -> Expr:
        magnitude = call("abs", value)
        if p == 1:
            return magnitude
        return mul(value, value) if p == 2 else call("pow", magnitude, float(p))

    def root(value: Expr) -> Expr:
        if p == 1:
            return value
        return sqrt(value) if p == 2 else call("pow", value, 1.0 / p)

    return build.map(root, total(build.map(power, x)))


OP = Operator("LpPool", infer, lower, kind="window", dtypes=FLOATS)
