"""Panels that are computed: a product's constant operand is an expression over narrow constants.

The constants are packed in the order in which panels want them; each block of rows widens a panel once, into
scratch of the thread, and its tiles read it there.
"""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import Apply, Cast, Const, Expr, Load
from cuvil_build.kernel.nest import Axis
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.tile_context import PACKED_PANEL, Panel, TileContext, depth_index, reduction_loops
from cuvil_build.kernel.tile_operand import Operand
from cuvil_build.kernel.tile_plan import TilePlan
from cuvil_build.kernel.tile_product import Product


def computed_packings(plan: TilePlan) -> dict[str, Packing]:
    """Of what has a column; the rest is read where it lies."""
    column = plan.product.column
    loads = (part for part in plan.product.panel.parts if part.has(column))
    return {part.load.buffer.name: _packing(plan, part) for part in loads}


def _packing(plan: TilePlan, part: Operand) -> Packing:
    found, schedule = plan.product, plan.schedule
    index = tuple(i for i in part.load.index if isinstance(i, IntExpr))
    batch, reduction = _axes(found.batch, part), _axes(found.reduction, part)
    return Packing(batch, reduction, found.column, index, schedule.width, plan.last_vectors * schedule.lanes)


def _axes(axes: tuple[Axis, ...], part: Operand) -> tuple[Axis, ...]:
    return tuple(a for a in axes if part.has(a))


def compute_panel(context: TileContext, panel: Panel) -> list[p.Statement]:
    """packed_panel[reduction][column]; columns past the operand's are whatever zeros make of them."""
    lanes = context.schedule.lanes
    target = depth_index(context.product) * (panel.vectors * lanes)
    value = context.product.panel.value
    assert value is not None
    body = tuple(
        p.StoreAt(PACKED_PANEL, target + v * lanes, _value(context, panel, value, v))
        for v in range(panel.vectors)
    )
    return [reduction_loops(context.product, body)]


def _value(context: TileContext, panel: Panel, expr: Expr, vector: int) -> p.Value:
    """One vector of columns at the point of the reduction."""
    lanes = context.schedule.lanes
    if isinstance(expr, Load):
        return _load(context, panel, expr, vector)
    if isinstance(expr, Const):
        return p.Lit(expr.value, p.VType(expr.dtype, lanes))
    if isinstance(expr, Cast):
        return p.Convert(_value(context, panel, expr.value, vector), p.VType(expr.dtype, lanes))
    assert isinstance(expr, Apply), expr
    args = tuple(_value(context, panel, a, vector) for a in expr.args)
    return p.Op(expr.function, args, p.VType(expr.dtype, lanes))


def _load(context: TileContext, panel: Panel, load: Load, vector: int) -> p.Value:
    found, lanes = context.product, context.schedule.lanes
    part = next(o for o in found.panel.parts if o.load.buffer.name == load.buffer.name)
    wide = p.VType(load.dtype, lanes)
    if not part.has(found.column):
        return p.Splat(p.LoadAt(load.buffer.name, part.offset, p.VType(load.dtype, 1)), wide)
    start = _panel_start(context, found, part)
    depth = ZERO
    for axis in _axes(found.reduction, part):
        depth = depth * axis.extent + IntExpr.of(axis.name)
    offset = start + depth * (panel.vectors * lanes) + vector * lanes
    return p.LoadAt(load.buffer.name, offset, wide)


def _panel_start(context: TileContext, found: Product, part: Operand) -> IntExpr:
    packing = _packing(context.plan, part)
    batch = ZERO
    for axis in packing.batch_axes:
        batch = batch * axis.extent + IntExpr.of(axis.name)
    entry = batch * (packing.columns * packing.depth)
    return entry + IntExpr.of("panel") * (context.schedule.width * packing.depth)
