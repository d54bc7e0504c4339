"""Rows gathered into a packed block before the panels pass."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel import program as p
from cuvil_build.kernel.tile_context import PACKED_ROWS, TileContext
from cuvil_build.kernel.tile_operand import mentions


def pack_rows(context: TileContext) -> list[p.Statement]:
    """packed_rows[row - first_row][reduction] for the rows of the block."""
    row, target = IntExpr.of("row"), IntExpr.of("packed_at")
    reduction = context.product.reduction
    *outer, inner = reduction
    inner_conditions = [c for c in context.product.streamed.conditions if mentions(c, inner)]
    outer_conditions = [c for c in context.product.streamed.conditions if not mentions(c, inner)]
    element = IntExpr.of(inner.name)
    base = context.rows.at(context.product.streamed.offset, None)
    copy = p.StoreAt(PACKED_ROWS, target + element, p.LoadAt(context.streamed_buffer, base, context.scalar))
    clear = p.StoreAt(PACKED_ROWS, target + element, p.Lit(0.0, context.scalar))
    guarded: p.Statement = copy
    if inner_conditions:
        guarded = p.If(p.InRange(tuple(inner_conditions)), (copy,), (clear,))
    loop: p.Statement = p.For(inner.name, ZERO, inner.extent, ONE, (guarded,))
    if outer_conditions:
        fill = p.For(inner.name, ZERO, inner.extent, ONE, (clear,))
        loop = p.If(p.InRange(tuple(outer_conditions)), (loop,), (fill,))
    depth_index = ZERO
    for axis in outer:
        depth_index = depth_index * axis.extent + IntExpr.of(axis.name)
    depth_index = depth_index * inner.extent
    start = (row - IntExpr.of("first_row")) * context.product.depth + depth_index
    nest: tuple[p.Statement, ...] = (p.SetInt("packed_at", start), loop)
    for axis in reversed(outer):
        nest = (p.For(axis.name, ZERO, axis.extent, ONE, nest),)
    nest = (*context.rows.decode(row, ""), *nest)
    return [p.For("row", IntExpr.of("first_row"), context.rows.start_of(IntExpr.of("last_tile")), ONE, nest)]
