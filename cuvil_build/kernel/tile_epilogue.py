"""What happens to a tile's sums before they are stored."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import BOOL, INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import COMPARE, LOGIC, Apply, Cast, Const, Expr, IndexValue, Load
from cuvil_build.kernel.tile_context import PARTIAL, SPILL, Panel, TileContext


def resume_sums(context: TileContext, rows: int, panel: Panel) -> list[p.Statement]:
    """The sums of the slices before this one."""
    return [
        p.Assign(
            f"acc_{r}_{v}", context.vector, p.LoadAt(PARTIAL, _waiting(context, panel, r, v), context.vector)
        )
        for r in range(rows)
        for v in range(panel.vectors)
    ]


def keep_sums(context: TileContext, rows: int, panel: Panel) -> list[p.Statement]:
    return [
        p.StoreAt(PARTIAL, _waiting(context, panel, r, v), p.Var(f"acc_{r}_{v}", context.vector))
        for r in range(rows)
        for v in range(panel.vectors)
    ]


def _waiting(context: TileContext, panel: Panel, row: int, vector: int) -> IntExpr:
    lanes = context.schedule.lanes
    at = IntExpr.of("start") - IntExpr.of("first_row") + row
    return at * (panel.vectors * lanes) + vector * lanes


def finish_tile(context: TileContext, rows: int, panel: Panel) -> list[p.Statement]:
    body: list[p.Statement] = []
    lanes = context.schedule.lanes
    whole = panel.whole_vectors(lanes)
    for r in range(rows):
        for v in range(whole):
            column = IntExpr.of("first_column") + v * lanes
            result = _value(context, context.store.value, r, column, p.Var(f"acc_{r}_{v}", context.vector))
            body.append(_store(context, r, column, result))
    if whole == panel.vectors:
        return body
    return body + _spilled(context, rows, panel, whole)


def _spilled(context: TileContext, rows: int, panel: Panel, whole: int) -> list[p.Statement]:
    """Columns of vectors that are not full: through memory, one by one."""
    lanes = context.schedule.lanes
    stride = (panel.vectors - whole) * lanes
    body: list[p.Statement] = [p.LocalArray(SPILL, context.dtype, rows * stride)]
    for r in range(rows):
        for v in range(whole, panel.vectors):
            at = IntExpr.of(r * stride + (v - whole) * lanes)
            body.append(p.StoreAt(SPILL, at, p.Var(f"acc_{r}_{v}", context.vector)))
    lane = IntExpr.of("lane")
    inner: list[p.Statement] = []
    for r in range(rows):
        column = IntExpr.of("first_column") + whole * lanes + lane
        total = p.LoadAt(SPILL, lane + r * stride, context.scalar)
        inner.append(_store(context, r, column, _value(context, context.store.value, r, column, total)))
    body.append(p.For("lane", ZERO, panel.columns - whole * lanes, ONE, tuple(inner), unroll=1))
    return body


def _store(context: TileContext, row: int, column: IntExpr, value: p.Value) -> p.Statement:
    offset, step = _address(context, Load(context.store.target, context.store.index), row, column)
    name = context.store.target.name
    if value.type.lanes == 1 or step == ONE:
        return p.StoreAt(name, offset, value)
    return p.StoreStrided(name, offset, step, value)


def _address(context: TileContext, load: Load, row: int, column: IntExpr) -> tuple[IntExpr, IntExpr]:
    """(offset of the first lane, elements from lane to lane)."""
    total = ZERO
    for index, stride in zip(load.index, load.buffer.strides(), strict=True):
        assert isinstance(index, IntExpr)
        total = total + index * stride
    step = total.coefficient(context.product.column.name)
    assert step is not None
    return context.rows.at(total, row).substitute({context.product.column.name: column}), step


def _value(context: TileContext, expr: Expr, row: int, column: IntExpr, total: p.Value) -> p.Value:
    """The epilogue's value for as many lanes as `total` has."""
    lanes = total.type.lanes
    if isinstance(expr, Load):
        if expr.buffer.role == "temp":
            return total
        return _load(context, expr, row, column, lanes)
    if isinstance(expr, Const):
        return p.Lit(expr.value, p.VType(expr.dtype, lanes))
    if isinstance(expr, IndexValue):
        return _index_value(context, expr, row, column, lanes)
    if isinstance(expr, Cast):
        inner = _value(context, expr.value, row, column, total)
        return p.Convert(inner, p.VType(expr.dtype, lanes))
    assert isinstance(expr, Apply), expr
    args = tuple(_value(context, a, row, column, total) for a in expr.args)
    is_mask = expr.function in COMPARE or expr.function in LOGIC or expr.dtype == BOOL
    return p.Op(expr.function, args, p.VType(BOOL if is_mask else expr.dtype, lanes))


def _load(context: TileContext, load: Load, row: int, column: IntExpr, lanes: int) -> p.Value:
    offset, step = _address(context, load, row, column)
    scalar = p.VType(load.dtype, 1)
    if lanes == 1:
        return p.LoadAt(load.buffer.name, offset, scalar)
    if step == ZERO:
        return p.Splat(p.LoadAt(load.buffer.name, offset, scalar), p.VType(load.dtype, lanes))
    if step == ONE:
        return p.LoadAt(load.buffer.name, offset, p.VType(load.dtype, lanes))
    return p.LoadStrided(load.buffer.name, offset, step, p.VType(load.dtype, lanes))


def _index_value(context: TileContext, expr: IndexValue, row: int, column: IntExpr, lanes: int) -> p.Value:
    at = context.rows.at(expr.index, row).substitute({context.product.column.name: column})
    first: p.Value = p.IntValue(at, p.VType(INT64, 1))
    if lanes == 1:
        return first
    wide = p.VType(INT64, lanes)
    spread: p.Value = p.Splat(first, wide)
    step = expr.index.coefficient(context.product.column.name)
    assert step is not None
    if step == ZERO:
        return spread
    scaled: p.Value = p.Op("mul", (p.Iota(wide), p.Splat(p.IntValue(step, p.VType(INT64, 1)), wide)), wide)
    return p.Op("add", (spread, scaled), wide)
