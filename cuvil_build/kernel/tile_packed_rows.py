"""Rows gathered into a packed block before the panels pass."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel import program as p
from cuvil_build.kernel.nest import Axis
from cuvil_build.kernel.tile_context import PACKED_ROWS, TileContext
from cuvil_build.kernel.tile_operand import Condition, mentions


def pack_rows(context: TileContext) -> list[p.Statement]:
    """packed_rows[row - first_row][reduction] for the rows of the block."""
    row = IntExpr.of("row")
    *outer, inner = context.product.reduction
    conditions = context.product.streamed.conditions
    outer_conditions = [c for c in conditions if not mentions(c, inner)]
    run = _run(context)
    if outer_conditions:
        fill = p.For(inner.name, ZERO, inner.extent, ONE, (_clear(context),))
        run = (p.If(p.InRange(tuple(outer_conditions)), run, (fill,)),)
    place = ZERO
    for axis in outer:
        place = place * axis.extent + IntExpr.of(axis.name)
    start = (row - IntExpr.of("first_row")) * context.product.depth + place * inner.extent
    nest: tuple[p.Statement, ...] = (p.SetInt("packed_at", start), *run)
    for axis in reversed(outer):
        nest = (p.For(axis.name, ZERO, axis.extent, ONE, nest),)
    nest = (*context.rows.decode(row, ""), *nest)
    return [p.For("row", IntExpr.of("first_row"), context.rows.start_of(IntExpr.of("last_tile")), ONE, nest)]


def _run(context: TileContext) -> tuple[p.Statement, ...]:
    """Along the fastest axis: vectors where all of them are inside, else element by element."""
    *_, inner = context.product.reduction
    conditions = tuple(c for c in context.product.streamed.conditions if mentions(c, inner))
    element = IntExpr.of(inner.name)
    base = context.rows.at(context.product.streamed.offset, None)
    copy: p.Statement = p.StoreAt(
        PACKED_ROWS,
        IntExpr.of("packed_at") + element,
        p.LoadAt(context.streamed_buffer, base, context.scalar),
    )
    if conditions:
        copy = p.If(p.InRange(conditions), (copy,), (_clear(context),))
    loop = p.For(inner.name, ZERO, inner.extent, ONE, (copy,))
    if not conditions or not _is_contiguous(context, conditions):
        return (loop,)
    vector = _run_vector(context)
    count = -(-inner.extent.value // vector.lanes)
    last = count * vector.lanes - 1
    whole = tuple(
        (low, _at(index, inner, step), high) for low, index, high in conditions for step in (0, last)
    )
    first = _at(base, inner, 0)
    vectors = tuple(
        p.StoreAt(
            PACKED_ROWS,
            IntExpr.of("packed_at") + n * vector.lanes,
            p.LoadAt(context.streamed_buffer, first + n * vector.lanes, vector),
        )
        for n in range(count)
    )
    return (p.If(p.InRange(whole), vectors, (loop,)),)


def _run_vector(context: TileContext) -> p.VType:
    """What runs are copied by. It may write more than a run has: the next run covers that, and behind the
    last one there is room for a vector."""
    *_, inner = context.product.reduction
    lanes = context.schedule.lanes
    while lanes > 1 and inner.extent.is_static and lanes // 2 >= inner.extent.value:
        lanes //= 2
    return p.VType(context.dtype, lanes)


def _is_contiguous(context: TileContext, conditions: tuple[Condition, ...]) -> bool:
    """Whether neighbours of a run are neighbours in memory, and conditions bound just these."""
    *_, inner = context.product.reduction
    if not inner.extent.is_static or context.product.streamed.step(inner) != ONE:
        return False
    free = (part for low, _, high in conditions for part in (low, high))
    return all(index.coefficient(inner.name) == ONE for _, index, _ in conditions) and not any(
        inner.name in part.symbols() for part in free
    )


def _at(expr: IntExpr, inner: Axis, step: int) -> IntExpr:
    return expr.substitute({inner.name: step})


def _clear(context: TileContext) -> p.Statement:
    *_, inner = context.product.reduction
    place = IntExpr.of("packed_at") + IntExpr.of(inner.name)
    return p.StoreAt(PACKED_ROWS, place, p.Lit(0.0, context.scalar))
