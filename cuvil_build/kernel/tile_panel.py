"""The panel operand of a tile program: packed at build time, or panel by panel as the kernel runs."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel import program as p
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.tile_blocks import block_packings, panel_pointers
from cuvil_build.kernel.tile_computed import compute_panel, computed_packings
from cuvil_build.kernel.tile_context import PACKED_PANEL, Panel, TileContext, depth_index, reduction_loops
from cuvil_build.kernel.tile_integers import pack_integer_panel, packed_integers
from cuvil_build.kernel.tile_plan import TilePlan


def panel_packings(plan: TilePlan) -> dict[str, Packing]:
    """How constants that panels are made of must be packed, by buffer name."""
    found = plan.product
    if found.blocks:
        return block_packings(plan)
    if found.panel.value is not None:
        return computed_packings(plan)
    return {found.panel.load.buffer.name: constant_packing(plan)} if found.constant_panel else {}


def constant_packing(plan: TilePlan) -> Packing:
    found, schedule = plan.product, plan.schedule
    index = tuple(i for i in found.panel.load.index if isinstance(i, IntExpr))
    packing = Packing(
        found.batch, found.reduction, found.column, index,
        schedule.width, plan.last_vectors * schedule.lanes,
    )  # fmt: skip
    return packed_integers(packing, found, schedule) if found.is_integer else packing


def panel_kinds(plan: TilePlan) -> tuple[Panel | None, Panel | None]:
    """(whole panels, the last one): None where there is no such panel."""
    columns, width = plan.product.column.extent, plan.schedule.width
    whole = Panel(plan.schedule.vectors, IntExpr.of(width))
    if columns.is_static and columns.value % width == 0:
        return whole, None
    rest = columns - columns // width * width if columns.is_static else columns % width
    last = Panel(plan.last_vectors, rest)
    return (None if columns.is_static and columns.value < width else whole), last


def make_panel(context: TileContext, panel: Panel) -> list[p.Statement]:
    """`panel_data`: where the panel starts."""
    found, schedule = context.product, context.schedule
    if found.blocks:
        return panel_pointers(context)
    if not found.constant_panel:
        return [
            *_made(context, panel),
            p.Pointer("panel_data", context.panel_dtype, PACKED_PANEL, ZERO, True),
        ]
    batch = ZERO
    for axis in found.batch:
        batch = batch * axis.extent + IntExpr.of(axis.name)
    packing = constant_packing(context.plan)
    offset = batch * packing.columns * packing.stored_depth
    offset = offset + IntExpr.of("panel") * schedule.width * packing.stored_depth
    return [p.Pointer("panel_data", context.panel_dtype, found.panel.load.buffer.name, offset, True)]


def _made(context: TileContext, panel: Panel) -> list[p.Statement]:
    found = context.product
    if found.is_integer:
        place = depth_index(found)
        return pack_integer_panel(context, panel, place, lambda body: reduction_loops(found, body))
    return _pack(context, panel) if found.panel.value is None else compute_panel(context, panel)


def _pack(context: TileContext, panel: Panel) -> list[p.Statement]:
    """packed_panel[reduction][column] of a run-time operand; missing columns are zero."""
    found, schedule = context.product, context.schedule
    operand, column, source = found.panel, found.column, found.panel.load.buffer.name
    element, width = IntExpr.of("column"), panel.vectors * schedule.lanes
    target = depth_index(found) * width
    start = operand.offset.substitute({column.name: IntExpr.of("panel") * schedule.width + element})
    if operand.step(column) == ONE and panel.columns == IntExpr.of(width):
        first = start.substitute({"column": ZERO})
        body: tuple[p.Statement, ...] = tuple(
            p.StoreAt(
                PACKED_PANEL,
                target + v * schedule.lanes,
                p.LoadAt(source, first + v * schedule.lanes, context.vector),
            )
            for v in range(panel.vectors)
        )
        return [reduction_loops(found, body)]
    # Column by column: the operand is most often contiguous along the reduction.
    copy = p.StoreAt(PACKED_PANEL, target + element, p.LoadAt(source, start, context.scalar))
    clear = p.StoreAt(PACKED_PANEL, target + element, p.Lit(0.0, context.scalar))
    statements: list[p.Statement] = [
        p.For("column", ZERO, panel.columns, ONE, (reduction_loops(found, (copy,)),))
    ]
    if panel.columns != IntExpr.of(width):
        statements.append(
            p.For("column", panel.columns, IntExpr.of(width), ONE, (reduction_loops(found, (clear,)),))
        )
    return statements
