"""Unique: each number, or each slice along an axis, once."""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, product
from cuvil_build.kernel.builder import Index, NestBuilder, Shape, View
from cuvil_build.kernel.expr import Buffer, Expr, Local
from cuvil_build.kernel.routine_writer import RoutineWriter, load, number, symbol
from cuvil_build.kernel.view import of_buffer, reindex, reshape, transpose
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, sub
from cuvil_build.ops.shapes import NUMBERS, normal_axis
from cuvil_build.ops.sorting import Pairs, merge_sort


def infer(ctx: InferContext, x: Known, *, axis: int | None = None, sorted: int = 1) -> tuple[Known, ...]:
    along = None if axis is None else normal_axis(axis, x.rank)
    extent = product(x.shape) if along is None else x.shape[along]
    count = ctx.measured("count", 0, extent)
    shape = (count,) if along is None else (*x.shape[:along], count, *x.shape[along + 1 :])
    numbers = Known(INT64, (count,))
    return Known(x.dtype, shape), numbers, Known(INT64, (extent,)), numbers


def measure(build: NestBuilder, x: View, *, axis: int | None = None, sorted: int = 1) -> View:
    return of_buffer(_grouped(build, _rows(build, x, axis), by_value=True).total)


def lower(build: NestBuilder, x: View, *, axis: int | None = None, sorted: int = 1) -> tuple[View, ...]:
    rows = _rows(build, x, axis)
    groups = _grouped(build, rows, by_value=bool(sorted))
    along = 0 if axis is None else normal_axis(axis, x.rank)
    shape = _shape(build, x, None if axis is None else along)
    count = shape[along : along + 1]
    rest = [d for d in range(len(shape)) if d != along]

    def at(index: Index) -> Expr:
        flat = ZERO
        for dim in rest:
            flat = flat * shape[dim] + index[dim]
        return load(rows, load(groups.first, index[along]), flat)

    chosen = build.compute(shape, x.dtype, at)
    firsts = reindex(of_buffer(groups.first), count, lambda index: index)
    counts = reindex(of_buffer(groups.counts), count, lambda index: index)
    return chosen, firsts, of_buffer(groups.group), counts


def _shape(build: NestBuilder, x: View, along: int | None) -> Shape:
    """Of the first output, which may be absent."""
    chosen, firsts, _, counts = (*build.outputs, None, None, None, None)[:4]
    if chosen is not None:
        return chosen[1]
    other = firsts or counts
    # without any of them its dim is in no kernel's shape
    count = other[1] if other is not None else (ONE,)
    return count if along is None else (*x.shape[:along], *count, *x.shape[along + 1 :])


def _rows(build: NestBuilder, x: View, axis: int | None) -> Buffer:
    """[what is compared, its elements]."""
    if axis is None:
        return build.buffer(reshape(x, (product(x.shape), ONE)))
    along = normal_axis(axis, x.rank)
    moved = transpose(x, (along, *(d for d in range(x.rank) if d != along)))
    return build.buffer(reshape(moved, (moved.shape[0], product(moved.shape[1:]))))


@dataclass(frozen=True, slots=True)
class _Groups:
    """Equal rows; memory for as many groups as there are rows."""

    total: Buffer
    group: Buffer
    """Of each row."""
    first: Buffer
    """Row of each group."""
    counts: Buffer


def _grouped(build: NestBuilder, rows: Buffer, *, by_value: bool) -> _Groups:
    """Groups in order of their values, or of their first rows."""
    extent = rows.shape[0]
    total = build.allocate(INT64, ())
    found = _Groups(total, *(build.allocate(INT64, (extent,)) for _ in range(3)))
    order, spare = build.allocate(INT64, (extent,)), build.allocate(INT64, (extent,))
    is_flat = rows.shape[1] == ONE
    values = [build.allocate(rows.dtype, (extent,)) for _ in range(2)] if is_flat else []
    with build.routine("sort") as r:
        with r.loop(extent) as step:
            r.store(order, (step,), step)
            if is_flat:
                r.store(values[0], (step,), load(rows, step, 0))
        if is_flat:
            Pairs(values[0], order, values[1], spare, "lt").sort(r, extent)
        else:
            merge_sort(r, order, spare, extent, lambda r, one, other: _is_greater(r, rows, one, other))
        count = r.let(0, "count")
        with r.loop(extent) as step:
            row = r.let(load(order, step), "row")
            is_new = r.let(call("eq", number(step), 0), "new")
            with r.when(call("gt", number(step), 0)):
                before = r.let(load(order, step - 1), "before")
                r.set(is_new, _is_greater(r, rows, row, before))
            with r.when(is_new):
                r.store(found.first, (count,), row)
                r.store(found.counts, (count,), 0)
                r.increase(count)
            group = r.let(sub(count, 1), "group")
            r.store(found.group, (row,), group)
            r.store(found.counts, (group,), add(load(found.counts, group), 1))
        r.store(total, (), count)
    return found if by_value else _by_first(build, found)


def _by_first(build: NestBuilder, groups: _Groups) -> _Groups:
    extent = groups.group.shape[0]
    found = _Groups(groups.total, *(build.allocate(INT64, (extent,)) for _ in range(3)))
    renamed = build.allocate(INT64, (extent,))
    with build.routine("loop") as r:
        count = r.let(0, "count")
        with r.loop(extent) as row:
            group = r.let(load(groups.group, row), "group")
            with r.when(call("eq", load(groups.first, group), number(row))):
                r.store(renamed, (group,), count)
                r.store(found.first, (count,), row)
                r.store(found.counts, (count,), load(groups.counts, group))
                r.increase(count)
            r.store(found.group, (row,), load(renamed, group))
    return found


def _is_greater(r: RoutineWriter, rows: Buffer, one: Local, other: Local) -> Expr:
    width = rows.shape[1]
    if width == ONE:
        return call("gt", load(rows, one, ZERO), load(rows, other, ZERO))
    at = r.let(0, "at")
    same = call("eq", load(rows, one, symbol(at)), load(rows, other, symbol(at)))
    with r.repeat(call("and", call("lt", at, number(width)), same)):
        r.increase(at)
    greater = call("gt", load(rows, one, symbol(at)), load(rows, other, symbol(at)))
    return call("and", call("lt", at, number(width)), greater)


OP = Operator("Unique", infer, lower, kind="sort", dtypes=(*NUMBERS, "bool"), measure=measure)
