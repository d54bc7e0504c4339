"""Pad with a constant, by reflection, by repeating the edge, or by wrapping around."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ZERO, IntExpr, maximum, minimum
from cuvil_build.errors import ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import reindex, within
from cuvil_build.ops.choices import Least, from_end, is_equal
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, integers, normal_axes

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
    amounts = _amounts(lambda e: ctx.bounds(e)[0], x, pads, axes)
    if mode == "reflect":
        for axis, (begin, end) in amounts.items():
            size = x.shape[axis] - _cut(begin) - _cut(end)
            for side in (begin, end):
                # an axis that isn't padded may be empty
                ctx.require_at_most(side, maximum(size - 1, 0), f"reflection on axis {axis}")
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
    every = _amounts(build.low, x, pads, axes)
    amounts = {a: (b, e) for a, (b, e) in every.items() if (b, e) != (ZERO, ZERO)}
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
        position, last = index[axis] - begin, x.shape[axis] - 1 - _cut(end)
        if mode == "wrap":
            first = _cut(begin)
            size = last + 1 - first
            # a multiple of the size keeps the dividend from being negative
            entries[axis] = first + (position - first + size * maximum(begin, 0)) % size
        elif mode == "edge":
            entries[axis] = _between(position, begin, end, last)
        else:
            low = position if begin == ZERO else maximum(position, _cut(begin) * 2 - position)
            entries[axis] = low if end == ZERO else minimum(low, last * 2 - low)
    return tuple(entries)


def _between(position: IntExpr, begin: IntExpr, end: IntExpr, last: IntExpr) -> IntExpr:
    low = position if begin == ZERO else maximum(position, _cut(begin))
    return low if end == ZERO else minimum(low, last)


def _cut(pad: IntExpr) -> IntExpr:
    """How much a negative pad takes away."""
    return maximum(-pad, 0)


def _amounts(
    least: Least, x: Known | View, pads: Known | View, axes: Known | View | None
) -> dict[int, tuple[IntExpr, IntExpr]]:
    listed, rank = integers(pads, "pads"), len(x.shape)
    along = integers(axes, "axes of Pad") if axes is not None else [IntExpr.of(d) for d in range(rank)]
    count = len(along)
    if len(listed) != 2 * count:
        raise ShapeMismatch(f"Pad has {len(listed)} pads for {count} axes")
    pairs = list(zip(listed[:count], listed[count:]))
    if all(a.is_static for a in along):
        return dict(zip(normal_axes([a.value for a in along], rank), pairs))
    positions = [from_end(a, IntExpr.of(rank), least) for a in along]
    found: dict[int, tuple[IntExpr, IntExpr]] = {}
    for axis in range(rank):
        named = [is_equal(p, axis) for p in positions]
        begin = sum((n * b for n, (b, _) in zip(named, pairs)), ZERO)
        found[axis] = begin, sum((n * e for n, (_, e) in zip(named, pairs)), ZERO)
    return found


OP = Operator("Pad", infer, lower, dtypes=ANY, shape_operands=(1, 3))
