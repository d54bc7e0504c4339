"""Reductions over axes: one row each."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuvil_build.cuir.dtypes import FLOAT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum, minimum, product
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import integer, reindex
from cuvil_build.ops.choices import Least, chosen, is_equal, named_axes
from cuvil_build.ops.contents import Contents, array_of
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, log, mul, select, sqrt
from cuvil_build.ops.shapes import NUMBERS, Shape, integers, normal_axes

Reduction = Callable[[NestBuilder, View, list[int]], View]
"""Of a view over axes, which stay as size 1."""


def _joined(extents: Sequence[IntExpr]) -> list[IntExpr]:
    """Their product, as one expression where each of them is short."""
    return [product(extents)] if all(len(e.terms) == 1 for e in extents) else list(extents)


def mean(build: NestBuilder, x: View, axes: list[int]) -> View:
    """The sum divided by the number of elements."""
    # factor by factor: what data decides would make a long polynomial
    factors = [integer(extent, x.dtype) for extent in _joined([x.shape[axis] for axis in axes])]
    count = functools.reduce(mul, factors) if factors else integer(1, x.dtype)
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
    peak = build.map(_finite_or_zero, build.reduce("max", x, axes))
    exps = build.map("exp", build.map("sub", x, peak))
    return build.map(lambda total, p: add(log(total), p), build.reduce("sum", exps, axes), peak)


def _finite_or_zero(x: Expr) -> Expr:
    """An infinite peak would leave no number of the differences; an empty sum has one."""
    return select(call("lt", call("abs", x), math.inf), x, 0.0)


def _axes(
    rank: int, operand: Known | View | None, attribute: Sequence[int] | None, noop: int
) -> list[int] | list[IntExpr]:
    """The reduced axes: numbers, or what data decides."""
    if operand is None and not attribute:
        return [] if noop else list(range(rank))
    listed = [IntExpr.of(a) for a in attribute or ()] if operand is None else integers(operand, "axes")
    if not listed:
        return [] if noop else list(range(rank))
    if all(axis.is_static for axis in listed):
        return sorted(normal_axes([axis.value for axis in listed], rank))
    return listed


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Reduced axes that data decides."""

    named: tuple[IntExpr, ...]
    """1 for each axis that is reduced, else 0."""
    count: int
    """Of the reduced axes."""
    shape: Shape

    def kept(self) -> list[IntExpr]:
        return [chosen(n, 1, extent) for n, extent in zip(self.named, self.shape)]

    def squeezed(self) -> list[IntExpr]:
        """The kept extents without the reduced axes."""
        rank = len(self.shape)
        return [
            sum((self._stands(d, place) * self.shape[d] for d in range(rank)), ZERO)
            for place in range(rank - self.count)
        ]

    def _stands(self, axis: int, place: int) -> IntExpr:
        """1 where the axis is kept, as the one at `place` of those that are."""
        before = sum((1 - n for n in self.named[:axis]), ZERO)
        return (1 - self.named[axis]) * is_equal(before, place)


def _chosen_axes(axes: Sequence[IntExpr | int], shape: Shape, least: Least) -> _Chosen:
    listed = [IntExpr.of(axis) for axis in axes]
    return _Chosen(tuple(named_axes(listed, len(shape), least)), len(axes), shape)


def _reduce_chosen(build: NestBuilder, reduction: Reduction, x: View, axes: _Chosen, keepdims: bool) -> View:
    """Every axis has a kept part and a reduced one, of which one is 1."""
    rank, result = x.rank, build.results[0][1]
    kept = result if keepdims else axes.kept()
    reduced = [extent + 1 - k for extent, k in zip(x.shape, kept)]
    both = reindex(
        x, (*kept, *reduced), lambda index: tuple(a + b for a, b in zip(index[:rank], index[rank:]))
    )
    inner = list(range(rank, 2 * rank))
    found = _without(build, reduction(build, both, inner), inner)
    if keepdims:
        return found
    lying = build.materialise(found)

    def spread(index: Index) -> Index:
        flat = ZERO
        for extent, entry in zip(result, index):
            flat = flat * extent + entry
        entries: list[IntExpr] = []
        for extent in reversed(kept):
            entries.append(flat % extent)
            flat = flat // extent
        return tuple(reversed(entries))

    return reindex(lying, result, spread)


def _row(
    name: str,
    reduction: Reduction,
    dtypes: tuple[str, ...] = NUMBERS,
    evaluate: Callable[..., Any] | None = None,
    is_exact: bool = True,
) -> Operator:
    """`is_exact`: integers stay integers on the way."""

    def infer(
        ctx: InferContext,
        x: Known,
        axes_operand: Known | None = None,
        *,
        axes: list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Known:
        reduced = _axes(x.rank, axes_operand, axes, noop_with_empty_axes)
        if _are_decided(reduced):
            most = [maximum(extent, 1) for extent in x.shape] if keepdims else None
            count = x.rank if keepdims else x.rank - len(reduced)
            return Known(x.dtype, tuple(_measured(ctx, d, most, x.shape) for d in range(count)))
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
        reduced = _axes(x.rank, axes_operand, axes, noop_with_empty_axes)
        if not reduced and noop_with_empty_axes:
            return x
        numbers = x if is_exact or x.dtype.is_float else build.cast(x, FLOAT64)
        source = build.settle(numbers)
        if _are_decided(reduced):
            decided = _chosen_axes(reduced, x.shape, build.low)
            result = _reduce_chosen(build, reduction, source, decided, bool(keepdims))
        else:
            fixed = [axis for axis in reduced if isinstance(axis, int)]
            result = reduction(build, source, fixed)
            result = result if keepdims else _without(build, result, fixed)
        return build.cast(result, x.dtype)

    return Operator(
        name,
        infer,
        lower,
        kind="reduce",
        dtypes=dtypes,
        evaluate=evaluate,
        shape_operands=(1,),
        measure=_measure,
    )


def _are_decided(axes: Sequence[IntExpr | int]) -> bool:
    return any(isinstance(axis, IntExpr) for axis in axes)


def _measured(ctx: InferContext, axis: int, most: Sequence[IntExpr] | None, shape: Shape) -> IntExpr:
    limit = most[axis] if most else maximum(*shape)
    return ctx.measured(f"axis {axis} after a reduction", 0, limit)


def _measure(
    build: NestBuilder,
    x: View,
    axes_operand: View,
    *,
    axes: list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> tuple[View, ...]:
    found = _chosen_axes(integers(axes_operand, "axes"), x.shape, build.low)
    return tuple(build.scalar(n) for n in (found.kept() if keepdims else found.squeezed()))


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
    _row("ReduceL1", _of(lambda x: call("abs", x))),
    _row("ReduceL2", _of(lambda x: mul(x, x), sqrt), is_exact=False),
    _row("ReduceLogSum", _of(lambda x: x, log), is_exact=False),
    _row("ReduceLogSumExp", _log_sum_exp, is_exact=False),
    _row("ReduceMax", _plain("max"), (*NUMBERS, "bool"), _largest),
    _row("ReduceMean", mean, is_exact=False),
    _row("ReduceMin", _plain("min"), (*NUMBERS, "bool"), _smallest),
    _row("ReduceProd", _plain("prod"), NUMBERS, _product),
    _row("ReduceSum", _plain("sum"), NUMBERS, _sum),
    _row("ReduceSumSquare", _of(lambda x: mul(x, x))),
)
