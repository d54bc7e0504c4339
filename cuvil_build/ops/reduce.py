"""Reductions over axes: one row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cuvil_build.cuir.int_expr import ONE, IntExpr, maximum, minimum, product
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.view import integer
from cuvil_build.ops.contents import Contents, array_of
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, log, mul, sqrt
from cuvil_build.ops.shapes import FLOATS, NUMBERS, axes_of, normal_axes

Reduction = Callable[[NestBuilder, View, list[int]], View]
"""Of a view over axes, which stay as size 1."""


def count_of(view: View, axes: Sequence[int]) -> IntExpr:
    return product(view.shape[axis] for axis in axes)


def mean(build: NestBuilder, x: View, axes: list[int]) -> View:
    """The sum divided by the number of elements."""
    count = integer(count_of(x, axes), x.dtype)
    total = build.reduce("sum", x, axes)
    return build.compute(total.shape, x.dtype, lambda index: call("div", total.at(index), count))


def _plain(kind: str) -> Reduction:
    return lambda build, x, axes: build.reduce(kind, x, axes)


def _of(before: Callable[..., Any], after: Callable[..., Any] | None = None) -> Reduction:
    """Sum of a function, then a function of the sum."""

    def reduction(build: NestBuilder, x: View, axes: list[int]) -> View:
        total = build.reduce("sum", build.map(before, x), axes)
        return build.map(after, total) if after else total

    return reduction


def _log_sum_exp(build: NestBuilder, x: View, axes: list[int]) -> View:
    peak = build.reduce("max", x, axes)
    exps = build.map("exp", build.map("sub", x, peak))
    return build.map(lambda total, p: add(log(total), p), build.reduce("sum", exps, axes), peak)


def _reduced_axes(
    rank: int, operand: Known | View | None, attribute: Sequence[int] | None, noop: int
) -> list[int]:
    axes = axes_of(operand, attribute)
    if not axes:
        return [] if noop else list(range(rank))
    return sorted(normal_axes(axes, rank))


def _row(
    name: str, reduction: Reduction, dtypes: tuple[str, ...], evaluate: Callable[..., Any] | None = None
) -> Operator:
    def infer(
        ctx: InferContext,
        x: Known,
        axes_operand: Known | None = None,
        *,
        axes: list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Known:
        reduced = _reduced_axes(x.rank, axes_operand, axes, noop_with_empty_axes)
        shape = [ONE if d in reduced else extent for d, extent in enumerate(x.shape)]
        if not keepdims:
            shape = [extent for d, extent in enumerate(x.shape) if d not in reduced]
        return Known(x.dtype, tuple(shape))

    def lower(
        build: NestBuilder,
        x: View,
        axes_operand: View | None = None,
        *,
        axes: list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> View:
        reduced = _reduced_axes(x.rank, axes_operand, axes, noop_with_empty_axes)
        result = reduction(build, build.settle(x), reduced)
        return result if keepdims else _without(build, result, reduced)

    return Operator(name, infer, lower, kind="reduce", dtypes=dtypes, evaluate=evaluate, shape_operands=(1,))


def _without(build: NestBuilder, view: View, axes: list[int]) -> View:
    """The view without axes of size 1."""
    shape = [extent for d, extent in enumerate(view.shape) if d not in axes]

    def at(index: tuple[IntExpr, ...]) -> Any:
        rest = iter(index)
        return view.at(tuple(IntExpr.of(0) if d in axes else next(rest) for d in range(view.rank)))

    return build.compute(shape, view.dtype, at)


def _evaluate(function: Callable[[IntExpr, IntExpr], IntExpr], neutral: int | None) -> Callable[..., Any]:
    combine = np.frompyfunc(function, 2, 1)

    def evaluate(
        ctx: InferContext,
        x: Contents,
        axes_operand: Contents | None = None,
        *,
        axes: list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Contents | None:
        listed = [IntExpr.of(v).value for v in axes_operand.reshape(-1)] if axes_operand is not None else axes
        if not listed and noop_with_empty_axes:
            return x
        reduced = sorted(normal_axes(listed, x.ndim)) if listed else list(range(x.ndim))
        if neutral is None and any(x.shape[axis] == 0 for axis in reduced):
            return None
        result = x
        for axis in reversed(reduced):
            if result.shape[axis]:
                result = np.asarray(combine.reduce(result, axis=axis, keepdims=True), dtype=object)
            else:
                shape = [1 if d == axis else n for d, n in enumerate(result.shape)]
                result = np.full(shape, IntExpr.of(neutral or 0), dtype=object)
        kept = result.shape if keepdims else tuple(n for d, n in enumerate(result.shape) if d not in reduced)
        return array_of(result.reshape(-1), kept)

    return evaluate


_sum = _evaluate(lambda a, b: a + b, 0)
_product = _evaluate(lambda a, b: a * b, 1)
_largest = _evaluate(lambda a, b: maximum(a, b), None)
_smallest = _evaluate(lambda a, b: minimum(a, b), None)

OPS = (
    _row("ReduceL1", _of(lambda x: call("abs", x)), NUMBERS),
    _row("ReduceL2", _of(lambda x: mul(x, x), sqrt), FLOATS),
    _row("ReduceLogSum", _of(lambda x: x, log), ("float32",)),
    _row("ReduceLogSumExp", _log_sum_exp, ("float32",)),
    _row("ReduceMax", _plain("max"), NUMBERS, _largest),
    _row("ReduceMean", mean, FLOATS),
    _row("ReduceMin", _plain("min"), NUMBERS, _smallest),
    _row("ReduceProd", _plain("prod"), NUMBERS, _product),
    _row("ReduceSum", _plain("sum"), NUMBERS, _sum),
    _row("ReduceSumSquare", _of(lambda x: mul(x, x)), NUMBERS),
)
