"""Pad with a constant, by reflection, by repeating the edge, or by wrapping around."""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import ZERO, IntExpr, maximum, minimum
from cuvil_build.errors import ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Const, Expr
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import integer, reindex, within
from cuvil_build.ops import scalar
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, select, sub
from cuvil_build.ops.shapes import ANY, Shape, integers, normal_axes

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
    rows = _rows(x.shape, pads, axes)
    if not rows.are_static:
        return Known(x.dtype, tuple(ctx.measured(f"axis {d} of Pad") for d in range(x.rank)))
    amounts = rows.amounts()
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
    rows = _rows(x.shape, pads, axes)
    if not rows.are_static:
        return _lower_decided(build, x, rows, value, mode)
    amounts = {a: (b, e) for a, (b, e) in rows.amounts().items() if (b, e) != (ZERO, ZERO)}
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """The operands as lists."""

    rank: int
    along: list[IntExpr]
    pairs: list[tuple[IntExpr, IntExpr]]

    @property
    def are_static(self) -> bool:
        return all(axis.is_static for axis in self.along)

    def amounts(self) -> dict[int, tuple[IntExpr, IntExpr]]:
        return dict(zip(normal_axes([a.value for a in self.along], self.rank), self.pairs))


def _rows(shape: Shape, pads: Known | View, axes: Known | View | None) -> _Rows:
    listed, rank = integers(pads, "pads"), len(shape)
    along = integers(axes, "axes of Pad") if axes is not None else [IntExpr.of(d) for d in range(rank)]
    count = len(along)
    if len(listed) != 2 * count:
        raise ShapeMismatch(f"Pad has {len(listed)} pads for {count} axes")
    return _Rows(rank, along, list(zip(listed[:count], listed[count:])))


# Axes that data decides --------------------------------------------------------------------------


def measure(
    build: NestBuilder,
    x: View,
    pads: View,
    value: View | None = None,
    axes: View | None = None,
    *,
    mode: str = "constant",
) -> tuple[View, ...]:
    table = _tabulate(build, _rows(x.shape, pads, axes))
    return tuple(_extent(build, table, d, extent) for d, extent in enumerate(x.shape))


def _extent(build: NestBuilder, table: Buffer, axis: int, extent: IntExpr) -> View:
    def at(index: Index) -> Expr:
        around = add(load(table, axis, 0), load(table, axis, 1))
        return scalar.maximum(add(integer(extent, INT64), around), 0)

    return build.compute((), INT64, at)


def _tabulate(build: NestBuilder, rows: _Rows) -> Buffer:
    """[axis, begin or end]."""
    table = build.allocate(INT64, (IntExpr.of(rows.rank), IntExpr.of(2)), (0, 1))
    with build.routine("loop") as r:
        for axis in range(rows.rank):
            for side in range(2):
                r.store(table, (axis, side), 0)
            for named, pair in zip(rows.along, rows.pairs):
                place = r.let(named, "axis")
                with r.when(call("or", call("eq", place, axis), call("eq", place, axis - rows.rank))):
                    for side, pad in enumerate(pair):
                        r.store(table, (axis, side), pad)
    return table


def _lower_decided(build: NestBuilder, x: View, rows: _Rows, value: View | None, mode: str) -> View:
    source, table = build.buffer(x), _tabulate(build, rows)
    outside = Const(x.dtype.numpy.type(0).item(), x.dtype)

    def at(index: Index) -> Expr:
        entries: list[Expr] = []
        is_inside: Expr | None = None
        for axis, extent in enumerate(x.shape):
            position = sub(integer(index[axis], INT64), load(table, axis, 0))
            last = integer(extent - 1, INT64)
            if mode == "constant":
                here = call("and", call("ge", position, 0), call("le", position, last))
                is_inside = here if is_inside is None else call("and", is_inside, here)
            else:
                first, end = (scalar.maximum(call("neg", load(table, axis, n)), 0) for n in range(2))
                position = _moved(mode, position, first, sub(last, end))
            entries.append(scalar.maximum(scalar.minimum(position, last), 0))
        element = load(source, *entries)
        if is_inside is None:
            return element
        return select(is_inside, element, outside if value is None else value.at((ZERO,) * value.rank))

    return build.compute(build.results[0][1], x.dtype, at)


def _moved(mode: str, position: Expr, first: Expr, last: Expr) -> Expr:
    """Between the first and the last element that stay."""
    if mode == "edge":
        return scalar.maximum(scalar.minimum(position, last), first)
    behind, width = sub(position, first), sub(last, first)
    if mode == "wrap":
        return add(first, call("mod", behind, scalar.maximum(add(width, 1), 1)))
    period = scalar.maximum(add(width, width), 1)
    turned = call("mod", behind, period)
    return add(first, scalar.minimum(turned, sub(period, turned)))


OP = Operator("Pad", infer, lower, dtypes=ANY, shape_operands=(1, 3), measure=measure)
