"""Products of 8-bit integers in register tiles, exact in int32.

Rows are packed in the dtype that the target's instructions read, panels keep their 8 bits, and both have
groups of neighbouring steps side by side. With the zero points zx of a row and zw of a column,

    sum (x - zx)(w - zw) = sum x w - zx * sum w - zw * sum (x - zx)

Rows of 16 bits hold x - zx. Rows of 8 bits hold x, moved by 128 where their sign is not the instructions',
and the sums of columns stand behind each packed panel. Where columns have zero points, or had to be moved,
the sums of rows are taken when the rows are packed. What lies outside of a window is zx.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from cuvil_build.cuir.dtypes import DTYPES, INT32, UINT8, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import Const, Expr, Load
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.tile_context import (
    COLUMN_SUMS,
    PACKED_PANEL,
    PACKED_ROWS,
    ROW_SUMS,
    Panel,
    TileContext,
)
from cuvil_build.kernel.tile_operand import Condition, mentions, offset_of
from cuvil_build.kernel.tile_product import Product
from cuvil_build.kernel.tile_schedule import TileSchedule

INT8, INT16 = DTYPES["int8"], DTYPES["int16"]
_HALF = 128
"""From numbers with a sign to those without."""


def packed_integers(packing: Packing, found: Product, schedule: TileSchedule) -> Packing:
    shift = _panel_shift(found, schedule)
    dtype = INT8.name if shift else ""
    return replace(
        packing, group=schedule.group, shift=shift, dtype=dtype, sums=has_column_sums(found, schedule)
    )


def has_row_sums(context: TileContext) -> bool:
    found = context.product
    if not found.is_integer or (context.row_dtype == INT16 and not found.constant_panel):
        return False  # columns are packed less their zero points
    return found.panel.zero is not None or _panel_shift(found, context.schedule) != 0


def panel_zero(context: TileContext, value: Callable[[Expr], p.Value], kind: p.VType) -> p.Value:
    """Of columns, as int32 in as many lanes as `kind` has; `value` gives the lanes of an expression."""
    zero, shift = context.product.panel.zero, _panel_shift(context.product, context.schedule)
    if zero is None or isinstance(zero, Const):
        return p.Lit(shift + (0 if zero is None else int(zero.value)), kind)
    moved: p.Value = p.Convert(value(zero), kind)
    return p.Op("add", (moved, p.Lit(shift, kind)), kind) if shift else moved


def less_column_sums(context: TileContext, row: int, panel: Panel, vector: int, start: p.Value) -> p.Value:
    """What a sum starts from, less what the zero point of its row takes."""
    kind = context.vector
    if not context.product.is_integer or not has_column_sums(context.product, context.schedule):
        return start
    lanes = context.schedule.lanes
    at = context.depth * (panel.vectors * lanes) + vector * lanes * INT32.nbytes
    stored = p.LoadAt("panel_data", at, p.VType(context.panel_dtype, lanes * INT32.nbytes))
    sums: p.Value = p.Op("bitcast", (stored,), kind)
    if not context.product.constant_panel:
        sums = p.LoadAt(COLUMN_SUMS, IntExpr.of(vector * lanes), kind)
    zero = p.Splat(_row_zero(context, row, INT32), kind)
    return p.Op("sub", (start, p.Op("mul", (zero, sums), kind)), kind)


def multiply_integers(
    context: TileContext, rows: int, panel: Panel, b: tuple[str, IntExpr], row_offset: IntExpr
) -> list[p.Statement]:
    """One group of steps."""
    vector, lanes = context.vector, context.schedule.lanes
    each = lanes * context.group
    pointer, offset = b
    row_kind = p.VType(context.row_dtype, each)
    kind = p.VType(INT16 if context.row_dtype == INT16 else INT8, each)
    body: list[p.Statement] = []
    for v in range(panel.vectors):
        stored = p.LoadAt(pointer, offset + v * each, p.VType(context.panel_dtype, each))
        body.append(p.Declare(f"b_{v}", kind, _as_read(stored, kind), constant=True))
    for r in range(rows):
        group = p.SplatGroup(f"a_{r}", row_offset, context.group, row_kind)
        body.append(p.Declare(f"s_{r}", row_kind, group, constant=True))
        for v in range(panel.vectors):
            acc = p.Var(f"acc_{r}_{v}", vector)
            dot = p.Dot(p.Var(f"s_{r}", row_kind), p.Var(f"b_{v}", kind), acc, vector)
            body.append(p.Assign(acc.name, vector, dot))
    return body


def _as_read(stored: p.Value, kind: p.VType) -> p.Value:
    """Elements of a panel as the product wants them: wider, or with their sign."""
    if kind.dtype == INT16 and stored.type != kind:
        return p.Convert(stored, kind)
    return stored if stored.type == kind else p.Op("bitcast", (stored,), kind)


def has_column_sums(found: Product, schedule: TileSchedule) -> bool:
    is_narrow = schedule.row_dtype != INT16.name
    return is_narrow and (found.streamed.zero is not None or _row_shift(found, schedule) != 0)


def _row_shift(found: Product, schedule: TileSchedule) -> int:
    memory = found.streamed.load.dtype.name
    if schedule.row_dtype == INT16.name or memory == schedule.row_dtype:
        return 0
    return _HALF if memory == INT8.name else -_HALF


def _panel_shift(found: Product, schedule: TileSchedule) -> int:
    """Instructions that read rows of 8 bits want panels with a sign."""
    is_moved = schedule.row_dtype not in ("", INT16.name) and found.panel.load.dtype == UINT8
    return -_HALF if is_moved else 0


def _row_zero(context: TileContext, row: int | None, dtype: DType) -> p.Value:
    """The zero point of a row as its packed elements have it; None: of the row that is being packed."""
    zero, shift = context.product.streamed.zero, _row_shift(context.product, context.schedule)
    kind = p.VType(dtype, 1)
    if not isinstance(zero, Load):
        return p.Lit(shift + (int(zero.value) if isinstance(zero, Const) else 0), kind)
    axes = (*context.nest.axes, *context.nest.stages[0].axes)
    offset = offset_of(zero, axes)
    assert offset is not None
    number = p.LoadAt(zero.buffer.name, context.rows.at(offset, row), p.VType(zero.dtype, 1))
    wide = p.Convert(number, p.VType(INT32, 1))
    moved = p.Op("add", (wide, p.Lit(shift, wide.type)), wide.type) if shift else wide
    return moved if dtype == INT32 else p.Convert(moved, kind)


# Packing panels as the kernel runs ---------------------------------------------------------------


def pack_integer_panel(
    context: TileContext,
    panel: Panel,
    place: IntExpr,
    loops: Callable[[tuple[p.Statement, ...]], p.Statement],
) -> list[p.Statement]:
    """packed_panel[group of steps][column][step of the group], and the sums of columns; what is missing is
    zero. `place`: of a step in the reduction; `loops` runs statements for each step."""
    found, width = context.product, panel.vectors * context.schedule.lanes
    column, scalar = IntExpr.of("column"), p.VType(context.panel_dtype, 1)
    each, total = p.Var("element", scalar), p.Var("column_sum", context.scalar)

    def at(step: IntExpr) -> IntExpr:
        group = context.group
        return step // group * (width * group) + column * group + step % group

    here = {found.column.name: IntExpr.of("panel") * context.schedule.width + column}
    added = p.Op("add", (total, p.Convert(each, context.scalar)), context.scalar)
    step: tuple[p.Statement, ...] = (
        p.Declare("element", scalar, _panel_element(context, here), constant=True),
        p.StoreAt(PACKED_PANEL, at(place), each),
        p.Assign("column_sum", context.scalar, added),
    )
    clear = p.StoreAt(PACKED_PANEL, at(IntExpr.of("k")), p.Lit(0, scalar))
    store = p.StoreAt(COLUMN_SUMS, column, total)
    body: list[p.Statement] = [p.Declare("column_sum", context.scalar, p.Lit(0, context.scalar)), loops(step)]
    if found.depth != context.depth:
        body.append(p.For("k", found.depth, context.depth, ONE, (clear,)))
    nothing: tuple[p.Statement, ...] = (p.For("k", ZERO, context.depth, ONE, (clear,)),)
    if has_column_sums(found, context.schedule):
        body.append(store)
        nothing = (*nothing, p.StoreAt(COLUMN_SUMS, column, p.Lit(0, context.scalar)))
    else:
        body, step = [loops(step[:2]), *body[2:]], step[:2]
    made: list[p.Statement] = [p.For("column", ZERO, panel.columns, ONE, tuple(body))]
    if panel.columns != IntExpr.of(width):
        made.append(p.For("column", panel.columns, IntExpr.of(width), ONE, nothing))
    return made


def _panel_element(context: TileContext, here: dict[str, IntExpr]) -> p.Value:
    """Of a column at a step, as instructions read it."""
    operand, kind = context.product.panel, p.VType(context.panel_dtype, 1)
    value: p.Value = p.LoadAt(
        operand.load.buffer.name, operand.offset.substitute(here), p.VType(operand.load.dtype, 1)
    )
    if context.panel_dtype == INT8:
        return _moved(value, kind, _panel_shift(context.product, context.schedule) != 0)
    value = p.Convert(value, kind)
    zero = operand.zero
    if zero is None:
        return value
    if isinstance(zero, Const):
        return p.Op("sub", (value, p.Lit(int(zero.value), kind)), kind)
    assert isinstance(zero, Load)
    offset = offset_of(zero, (*context.nest.axes, *context.nest.stages[0].axes))
    assert offset is not None
    number = p.LoadAt(zero.buffer.name, offset.substitute(here), p.VType(zero.dtype, 1))
    return p.Op("sub", (value, p.Convert(number, kind)), kind)


def _moved(value: p.Value, kind: p.VType, is_moved: bool) -> p.Value:
    """Bytes as instructions read them: their sign turned where it is another one."""
    if not is_moved:
        return value
    plain = p.VType(UINT8, kind.lanes)
    value = value if value.type == plain else p.Op("bitcast", (value,), plain)
    value = p.Op("bitxor", (value, p.Lit(_HALF, plain)), plain)
    return value if kind == plain else p.Op("bitcast", (value,), kind)


# Packing rows --------------------------------------------------------------------------------------


def pack_integers(context: TileContext) -> list[p.Statement]:
    """packed_rows[row - first_row][reduction] for the rows of the block, and their sums."""
    row, at = IntExpr.of("row"), IntExpr.of("row_at")
    *outer, inner = context.product.reduction
    conditions = context.product.streamed.conditions
    outer_conditions = tuple(c for c in conditions if not mentions(c, inner))
    run: tuple[p.Statement, ...] = tuple(_run(context))
    if outer_conditions:
        run = (p.If(p.InRange(outer_conditions), run, tuple(_fill(context))),)
    place = ZERO
    for axis in outer:
        place = place * axis.extent + IntExpr.of(axis.name)
    body: tuple[p.Statement, ...] = (p.SetInt("packed_at", at + place * inner.extent), *run)
    if _follows_itself(context):
        body = _long_run(context, place, body)
        outer.pop()
    for axis in reversed(outer):
        body = (p.For(axis.name, ZERO, axis.extent, ONE, body),)
    scalar = p.VType(context.row_dtype, 1)
    is_wide = context.row_dtype == INT16
    each = (
        *context.rows.decode(row, ""),
        p.SetInt("row_at", (row - IntExpr.of("first_row")) * context.depth),
        # What is taken off, or stands for what lies outside.
        p.Declare("zero", scalar, _row_zero(context, None, context.row_dtype), constant=True),
        *body,
        *_clear_rest(context),
        *(_sum_row(context, is_wide) if has_row_sums(context) else ()),
    )
    last = context.rows.start_of(IntExpr.of("last_tile"))
    return [p.For("row", IntExpr.of("first_row"), last, ONE, each)]


def _follows_itself(context: TileContext) -> bool:
    """Whether the runs of the axis before the fastest follow each other in memory: taps of few channels."""
    streamed, (*outer, inner) = context.product.streamed, context.product.reduction
    if not outer or streamed.step(inner) != ONE or streamed.step(outer[-1]) != inner.extent:
        return False
    conditions = streamed.conditions
    ends = [c for c in conditions if mentions(c, outer[-1])]
    is_even = all(_is_evenly_bound(c, outer[-1].name) for c in ends)
    is_static = inner.extent.is_static and outer[-1].extent.is_static
    return is_static and is_even and not any(mentions(c, inner) for c in conditions)


def _long_run(context: TileContext, place: IntExpr, each: tuple[p.Statement, ...]) -> tuple[p.Statement, ...]:
    """All runs of the axis at once where all of them are inside, else one by one."""
    *_, axis, inner = context.product.reduction
    start = {axis.name: ZERO}
    at = IntExpr.of("row_at") + place.substitute(start) * inner.extent
    extent = axis.extent * inner.extent
    whole = tuple(_in_vectors(context, lambda at, lanes: _copy(context, at, lanes, start), extent))
    inside = tuple(
        (low, index.substitute({axis.name: IntExpr.of(end)}), high)
        for low, index, high in context.product.streamed.conditions
        for end in (0, axis.extent.value - 1)
    )
    fast = (p.SetInt("packed_at", at), *whole)
    slow = p.For(axis.name, ZERO, axis.extent, ONE, each)
    return (p.If(p.InRange(tuple(dict.fromkeys(inside))), fast, (slow,)),) if inside else fast


def _clear_rest(context: TileContext) -> Iterator[p.Statement]:
    """What the last group lacks."""
    depth, whole = context.product.depth, context.depth
    scalar = p.VType(context.row_dtype, 1)
    at = IntExpr.of("row_at") + IntExpr.of("k")
    if depth != whole:
        yield p.For("k", depth, whole, ONE, (p.StoreAt(PACKED_ROWS, at, p.Lit(0, scalar)),))


def _sum_row(context: TileContext, is_wide: bool) -> Iterator[p.Statement]:
    lanes, group = context.schedule.lanes, context.group
    kind, each = context.vector, lanes * group
    at, k = IntExpr.of("row_at"), IntExpr.of("k")
    ones = p.Lit(1, p.VType(INT16 if is_wide else INT8, each))
    vectors = context.depth // each
    values = p.LoadAt(PACKED_ROWS, at + k * each, p.VType(context.row_dtype, each))
    sums = p.Var("sums", kind)
    yield p.Declare("sums", kind, p.Lit(0, kind))
    yield p.For("k", ZERO, vectors, ONE, (p.Assign("sums", kind, p.Dot(values, ones, sums, kind)),))
    total = p.Var("sum", context.scalar)
    yield p.Declare("sum", context.scalar, p.Horizontal("sum", sums, context.scalar))
    one = p.Convert(p.LoadAt(PACKED_ROWS, at + k, p.VType(context.row_dtype, 1)), context.scalar)
    more = p.Assign("sum", context.scalar, p.Op("add", (total, one), context.scalar))
    yield p.For("k", vectors * each, context.depth, ONE, (more,))
    result: p.Value = total
    if not is_wide and has_column_sums(context.product, context.schedule):
        count = p.Convert(p.IntValue(context.product.depth, p.VType(DTYPES["int64"], 1)), context.scalar)
        taken = p.Op("mul", (count, _row_zero(context, None, INT32)), context.scalar)
        result = p.Op("sub", (total, taken), context.scalar)
    yield p.StoreAt(ROW_SUMS, IntExpr.of("row") - IntExpr.of("first_row"), result)


def _run(context: TileContext) -> list[p.Statement]:
    """Along the fastest axis: in vectors where all of them are inside, else element by element."""
    *_, inner = context.product.reduction
    conditions = tuple(c for c in context.product.streamed.conditions if mentions(c, inner))
    copy: p.Statement = _copy(context, IntExpr.of(inner.name), 1)
    if conditions:
        copy = p.If(p.InRange(conditions), (copy,), (_outside(context, IntExpr.of(inner.name), 1),))
    loop = p.For(inner.name, ZERO, inner.extent, ONE, (copy,))
    if context.product.streamed.step(inner) != ONE:
        return [loop]
    vectors = list(_in_vectors(context, lambda start, lanes: _copy(context, start, lanes)))
    if not conditions:
        return vectors
    if not inner.extent.is_static or not all(_is_evenly_bound(c, inner.name) for c in conditions):
        return [loop]
    ends = (0, inner.extent.value - 1)
    inside = tuple(
        (low, index.substitute({inner.name: end}), high) for low, index, high in conditions for end in ends
    )
    return [p.If(p.InRange(inside), tuple(vectors), (loop,))]


def _is_evenly_bound(condition: Condition, name: str) -> bool:
    low, index, high = condition
    step = index.coefficient(name)
    return step is not None and step.is_static and not (low.symbols() | high.symbols()) & {name}


def _fill(context: TileContext) -> Iterator[p.Statement]:
    return _in_vectors(context, lambda start, lanes: _outside(context, start, lanes))


def _in_vectors(
    context: TileContext, write: Callable[[IntExpr, int], p.Statement], extent: IntExpr | None = None
) -> Iterator[p.Statement]:
    """A run in vectors; what is left over is written once more, with some before it."""
    *_, inner = context.product.reduction
    lanes = context.schedule.lanes * context.group
    vector, extent = IntExpr.of("vector"), inner.extent if extent is None else extent
    while extent.is_static and lanes > extent.value:
        lanes //= 2
    whole = extent // lanes
    if whole == ONE:
        yield write(ZERO, lanes)
    else:
        yield p.For("vector", ZERO, whole, ONE, (write(vector * lanes, lanes),))
    if extent.is_static:
        if extent.value % lanes:
            yield write(extent - lanes, lanes)
    else:
        element = IntExpr.of(inner.name)
        yield p.For(inner.name, whole * lanes, extent, ONE, (write(element, 1),))


def _copy(
    context: TileContext, start: IntExpr, lanes: int, outer: dict[str, IntExpr] | None = None
) -> p.Statement:
    """`outer`: where other axes stand."""
    *_, inner = context.product.reduction
    streamed = context.product.streamed
    base = context.rows.at(streamed.offset, None).substitute({inner.name: start} | (outer or {}))
    memory = p.VType(streamed.load.dtype, lanes)
    value: p.Value = p.LoadAt(context.streamed_buffer, base, memory)
    kind = p.VType(context.row_dtype, lanes)
    if context.row_dtype == INT16:
        value = p.Convert(value, kind)
        if streamed.zero is not None:
            value = p.Op("sub", (value, _zero(kind)), kind)
    else:
        value = _moved(value, kind, _row_shift(context.product, context.schedule) != 0)
    return p.StoreAt(PACKED_ROWS, IntExpr.of("packed_at") + start, value)


def _outside(context: TileContext, start: IntExpr, lanes: int) -> p.Statement:
    kind = p.VType(context.row_dtype, lanes)
    value = p.Lit(0, kind) if context.row_dtype == INT16 else _zero(kind)
    return p.StoreAt(PACKED_ROWS, IntExpr.of("packed_at") + start, value)


def _zero(kind: p.VType) -> p.Value:
    zero = p.Var("zero", p.VType(kind.dtype, 1))
    return p.Splat(zero, kind) if kind.lanes > 1 else zero
