"""Pad with a constant, by reflection, by repeating the edge, or by wrapping around."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ZERO, IntExpr, maximum, minimum
from cuvil_build.errors import ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import reindex, within
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, integers, normal_axes, static_integers

MODES = ("constant", "reflect", "edge", "wrap")


def infer(
    ctx: InferContext,
    x: Known,
    pads: Known,
    value: Known | None = None,
    axes: Known | None = None,
    *,
    mode: str = "constant",
) -> Known:
    if mode not in MODES:
        raise UnsupportedAttribute(f"mode='{mode}' is not supported", hint=f"known: {', '.join(MODES)}")
    amounts = _amounts(x, pads, axes)
    if mode == "reflect":
        for axis, (begin, end) in amounts.items():
            for side in (begin, end):
                ctx.require_at_most(side, x.shape[axis] - 1, f"reflection on axis {axis}")
    shape = [d + sum(amounts.get(axis, (ZERO, ZERO)), ZERO) for axis, d in enumerate(x.shape)]
    return Known(x.dtype, tuple(shape))


def lower(
    build: NestBuilder,
    x: View,
    pads: View,
    value: View | None = None,
    axes: View | None = None,
    *,
    mode: str = "constant",
) -> View:
    amounts = {a: (b, e) for a, (b, e) in _amounts(x, pads, axes).items() if (b, e) != (ZERO, ZERO)}
    shape = build.results[0][1]
    if mode != "constant":
        return reindex(x, shape, lambda index: _inside(mode, x, amounts, index))
    zero = Const(x.dtype.numpy.type(0).item(), x.dtype)

    def at(index: Index) -> Expr:
        source = tuple(i - amounts[d][0] if d in amounts else i for d, i in enumerate(index))
        outside = zero if value is None else value.at((ZERO,) * value.rank)
        return within([(ZERO, source[d], x.shape[d]) for d in amounts], x.at(source), outside)

    return build.compute(shape, x.dtype, at)


def _inside(mode: str, x: View, amounts: dict[int, tuple[IntExpr, IntExpr]], index: Index) -> Index:
    entries = list(index)
    for axis, (begin, end) in amounts.items():
        position, last = index[axis] - begin, x.shape[axis] - 1
        if mode == "wrap":
            entries[axis] = (position + _multiple(begin, x.shape[axis])) % x.shape[axis]
        elif mode == "edge":
            entries[axis] = _between(position, begin, end, last)
        else:
            low = position if begin == ZERO else maximum(position, -position)
            entries[axis] = low if end == ZERO else minimum(low, last * 2 - low)
    return tuple(entries)


def _between(position: IntExpr, begin: IntExpr, end: IntExpr, last: IntExpr) -> IntExpr:
    low = position if begin == ZERO else maximum(position, 0)
    return low if end == ZERO else minimum(low, last)


def _multiple(begin: IntExpr, extent: IntExpr) -> IntExpr:
    """A multiple of the extent that is at least `begin`: keeps the dividend from being negative."""
    return extent * begin


def _amounts(
    x: Known | View, pads: Known | View, axes: Known | View | None
) -> dict[int, tuple[IntExpr, IntExpr]]:
    listed = integers(pads, "pads")
    rank = len(x.shape)
    along = normal_axes(static_integers(axes, "axes of Pad"), rank) if axes is not None else list(range(rank))
    if len(listed) != 2 * len(along):
        raise ShapeMismatch(f"Pad has {len(listed)} pads for {len(along)} axes")
    return {axis: (listed[n], listed[n + len(along)]) for n, axis in enumerate(along)}


OP = Operator("Pad", infer, lower, dtypes=ANY, shape_operands=(1, 3))
