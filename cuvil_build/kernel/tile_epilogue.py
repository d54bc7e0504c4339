"""What happens to a tile's sums before they are stored."""

from __future__ import annotations

from collections.abc import Iterator

from cuvil_build.cuir.dtypes import BOOL, INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import COMPARE, LOGIC, Apply, Cast, Const, Expr, IndexValue, Load
from cuvil_build.kernel.nest import children, parts
from cuvil_build.kernel.tile_context import PARTIAL, ROW_SUMS, SPILL, Panel, TileContext
from cuvil_build.kernel.tile_integers import has_row_sums, less_column_sums, panel_zero


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


def first_sums(context: TileContext, rows: int, panel: Panel) -> list[p.Statement]:
    """What sums start from: the bias, in vectors that are full, else zero."""
    zero = p.Lit(0.0 if context.dtype.is_float else 0, context.vector)
    starts: list[p.Value] = [zero] * panel.vectors
    body: list[p.Statement] = []
    biased = _biased(context)
    if biased is not None:
        lanes = context.schedule.lanes
        for v in range(panel.whole_vectors(lanes)):
            column = IntExpr.of("first_column") + v * lanes
            value = _load(context, _bias_of(biased), 0, column, lanes)
            body.append(p.Declare(f"bias_{v}", context.vector, value, constant=True))
            starts[v] = p.Var(f"bias_{v}", context.vector)
    for r in range(rows):
        for v in range(panel.vectors):
            start = less_column_sums(context, r, panel, v, starts[v])
            body.append(p.Declare(f"acc_{r}_{v}", context.vector, start))
    return body


def _biased(context: TileContext) -> Apply | None:
    """The part of the epilogue that adds the bias, which is the same for all rows, to sums that nothing else
    uses. Sums that wait between slices start from zero."""
    found = [part for part in parts(context.store.value) if isinstance(part, Apply)]
    uses = sum(_is_sum(arg) for part in parts(context.store.value) for arg in children(part))
    adding = [part for part in found if any(map(_is_sum, part.args)) and _adds_bias(context, part)]
    return adding[0] if adding and uses == 1 and not context.slices.is_cut else None


def _adds_bias(context: TileContext, part: Apply) -> bool:
    loads = [a for a in part.args if isinstance(a, Load) and a.dtype == context.dtype]
    if part.function != "add" or len(loads) != 2 or part.dtype != context.dtype or all(map(_is_sum, loads)):
        return False
    offset, step = _address(context, _bias_of(part), 0, ZERO)
    rows = {"start", *(f"{a.name}_0" for a in context.rows.axes)}
    return step == ONE and not offset.symbols() & rows


def _bias_of(part: Apply) -> Load:
    return next(a for a in part.args if isinstance(a, Load) and not _is_sum(a))


def _is_sum(expr: Expr) -> bool:
    return isinstance(expr, Load) and expr.buffer.role == "temp"


def finish_tile(context: TileContext, rows: int, panel: Panel) -> list[p.Statement]:
    body: list[p.Statement] = []
    lanes = context.schedule.lanes
    whole = panel.whole_vectors(lanes)
    begun = _biased(context)
    for r in range(rows):
        for v in range(whole):
            column = IntExpr.of("first_column") + v * lanes
            total = p.Var(f"acc_{r}_{v}", context.vector)
            if has_row_sums(context):
                body.append(p.Assign(total.name, total.type, corrected(context, r, column, total)))
            result = _value(context, context.store.value, r, column, total, begun)
            body.append(_store(context, r, column, result))
    if whole == panel.vectors:
        return body
    return body + _spilled(context, rows, panel, whole)


def _spilled(context: TileContext, rows: int, panel: Panel, whole: int) -> list[p.Statement]:
    """Columns of vectors that are not full: through memory, in narrower vectors where their number is known,
    else one by one."""
    lanes = context.schedule.lanes
    stride = (panel.vectors - whole) * lanes
    body: list[p.Statement] = [p.LocalArray(SPILL, context.dtype, rows * stride)]
    for r in range(rows):
        for v in range(whole, panel.vectors):
            at = IntExpr.of(r * stride + (v - whole) * lanes)
            body.append(p.StoreAt(SPILL, at, p.Var(f"acc_{r}_{v}", context.vector)))

    def finish(lane: IntExpr, width: int) -> list[p.Statement]:
        column = IntExpr.of("first_column") + whole * lanes + lane
        statements: list[p.Statement] = []
        for r in range(rows):
            total: p.Value = p.LoadAt(SPILL, lane + r * stride, p.VType(context.dtype, width))
            if has_row_sums(context):
                name = f"total_{r}_{width}"
                statements.append(p.Declare(name, total.type, corrected(context, r, column, total), True))
                total = p.Var(name, total.type)
            statements.append(
                _store(context, r, column, _value(context, context.store.value, r, column, total))
            )
        return statements

    left = panel.columns - whole * lanes
    done = 0
    for width in _narrower(lanes, context.dtype.nbytes):
        if left.is_static and left.value - done >= width:
            body += finish(IntExpr.of(done), width)
            done += width
    if left != IntExpr.of(done):
        body.append(
            p.For("lane", IntExpr.of(done), left, ONE, tuple(finish(IntExpr.of("lane"), 1)), unroll=1)
        )
    return body


_NARROWEST = 16
"""Bytes of a vector that every machine with vectors has."""


def _narrower(lanes: int, itemsize: int) -> Iterator[int]:
    while (lanes := lanes // 2) * itemsize >= _NARROWEST:
        yield lanes


def corrected(context: TileContext, row: int, column: IntExpr, total: p.Value) -> p.Value:
    """Where columns of 8-bit integers have zero points, each takes the sum of the row that many times."""
    if not has_row_sums(context):
        return total
    kind = total.type
    zero = panel_zero(context, lambda e: _value(context, e, row, column, p.Lit(0, kind)), kind)
    at = IntExpr.of("start") - IntExpr.of("first_row") + row
    sums: p.Value = p.LoadAt(ROW_SUMS, at, context.scalar)
    sums = p.Splat(sums, kind) if kind.lanes > 1 else sums
    return p.Op("sub", (total, p.Op("mul", (zero, sums), kind)), kind)


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


def _value(
    context: TileContext,
    expr: Expr,
    row: int,
    column: IntExpr,
    total: p.Value,
    begun: Expr | None = None,
) -> p.Value:
    """The epilogue's value for as many lanes as `total` has. `begun`: what the total already is, if it is
    more than the sum."""
    lanes = total.type.lanes
    if expr is begun:
        return total
    if isinstance(expr, Load):
        if expr.buffer.role == "temp":
            return total
        return _load(context, expr, row, column, lanes)
    if isinstance(expr, Const):
        return p.Lit(expr.value, p.VType(expr.dtype, lanes))
    if isinstance(expr, IndexValue):
        return _index_value(context, expr, row, column, lanes)
    if isinstance(expr, Cast):
        inner = _value(context, expr.value, row, column, total, begun)
        return p.Convert(inner, p.VType(expr.dtype, lanes))
    assert isinstance(expr, Apply), expr
    args = tuple(_value(context, a, row, column, total, begun) for a in expr.args)
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
