"""The reduction of one register tile: vector loads of the panel, broadcasts of the rows, multiply-adds."""

from __future__ import annotations

from collections.abc import Callable

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide
from cuvil_build.kernel import program as p
from cuvil_build.kernel.tile_blocks import reduce_blocks, row_length
from cuvil_build.kernel.tile_context import PACKED_ROWS, ZEROS, Fetching, Panel, TileContext
from cuvil_build.kernel.tile_integers import multiply_integers
from cuvil_build.kernel.tile_schedule import LINE_BYTES, SHORT

Place = Callable[[int], tuple[str, IntExpr]]
"""Pointer and offset of a row's element."""


def row_pointers(context: TileContext, rows: int) -> list[p.Pointer]:
    """`a_r`: where a row's data of the slice start; indirect rows get theirs per tap."""
    mode, first = context.schedule.mode, context.slices.first_step
    start = IntExpr.of("start") - IntExpr.of("first_row")
    if mode == "indirect":
        return []
    if mode == "packed":
        depth = row_length(context) if context.product.blocks else context.depth
        return [
            p.Pointer(f"a_{r}", context.row_dtype, PACKED_ROWS, (start + r) * depth + first, True)
            for r in range(rows)
        ]
    *_, inner = context.product.reduction
    zero = {a.name: ZERO for a in context.product.reduction} | {inner.name: first}
    base = context.product.streamed.offset.substitute(zero)
    buffer = context.streamed_buffer
    dtype = context.row_dtype
    return [p.Pointer(f"a_{r}", dtype, buffer, context.rows.at(base, r), True) for r in range(rows)]


def reduce_tile(context: TileContext, rows: int, panel: Panel) -> list[p.Statement]:
    if context.product.blocks:
        return reduce_blocks(context, rows, panel)
    slices, width = context.slices, panel.vectors * context.schedule.lanes
    before, prefix = _tap_pointers(context, rows)
    b = "b"
    if slices.outer and not slices.steps_each:
        b = "b_tap"
        before.append(p.Pointer(b, context.dtype, "b", slices.tap_in_slice * slices.steps * width, True))
    k = IntExpr.of("k")
    if context.product.is_integer:
        group = context.group
        body = multiply_integers(context, rows, panel, ("b", k * (width * group)), k * group)
        return [
            p.For("k", ZERO, ceil_divide(slices.length, group), ONE, tuple(body), context.schedule.unroll)
        ]
    packed = context.schedule.mode in ("packed", "indirect")
    step = ONE if packed else context.product.streamed.step(context.product.reduction[-1])

    def at(k: IntExpr) -> tuple[p.Statement, ...]:
        return tuple(_multiply(context, rows, panel, lambda r: (f"{prefix}_{r}", k * step), (b, k * width)))

    if context.schedule.unroll == 1:
        return slices.over_taps([*before, *_walk(context, rows, panel, prefix, step, b)])
    # Neighbouring rows share elements of short taps: the compiler would keep them, and registers overflow.
    unroll = 1 if slices.outer and _is_short(slices.length) else context.schedule.unroll
    fetching = context.fetching
    if fetching is None:
        return slices.over_taps([*before, p.For("k", ZERO, slices.length, ONE, at(k), unroll=unroll)])
    runs, run, j = slices.length // fetching.run, IntExpr.of("run"), IntExpr.of("j")
    steps = p.For(
        "j", ZERO, IntExpr.of(fetching.run), ONE, at(run * fetching.run + j), unroll=context.schedule.unroll
    )
    fetches = _fetch(context, fetching, panel, run)
    if context.schedule.fetch_rows:
        fetches += _fetch_rows(context, fetching, [f"{prefix}_{r}" for r in range(rows)], step)
    loops: list[p.Statement] = [p.For("run", ZERO, runs, ONE, (*fetches, steps))]
    if not slices.length.is_static or slices.length.value % fetching.run:
        loops.append(p.For("k", runs * fetching.run, slices.length, ONE, at(k), unroll=unroll))
    return slices.over_taps([*before, *loops])


def _fetch(context: TileContext, fetching: Fetching, panel: Panel, run: IntExpr) -> list[p.Statement]:
    """The tile's share of the next slice, which follows this one in memory, line by line: all at once they
    would wait for each other, and the tile for them."""
    before = (IntExpr.of("tile") - IntExpr.of("first_tile")) * fetching.runs
    done = before + context.slices.tap_in_slice * fetching.runs_per_tap + run
    ahead = context.slices.largest * (panel.vectors * context.schedule.lanes)
    if fetching.near_bytes:
        ahead = IntExpr.of(fetching.near_bytes // context.dtype.nbytes)
    line = LINE_BYTES // context.dtype.nbytes
    return [p.Prefetch("b", ahead + (done * fetching.lines + n) * line) for n in range(fetching.lines)]


def _fetch_rows(
    context: TileContext, fetching: Fetching, rows: list[str], step: IntExpr
) -> list[p.Statement]:
    """What the next run reads of each row."""
    line = LINE_BYTES // context.dtype.nbytes
    first = (IntExpr.of("run") + 1) * fetching.run
    places = [(first + n) * step for n in range(0, fetching.run, line)]
    return [p.Prefetch(row, place) for row in rows for place in places]


def _is_short(steps: IntExpr) -> bool:
    return steps.is_static and steps.value < SHORT


def _walk(
    context: TileContext, rows: int, panel: Panel, prefix: str, step: IntExpr, b: str
) -> list[p.Statement]:
    """The loop for an engine that compiles it again: every pointer moves by itself, so that no address needs
    arithmetic of its own, and none of its registers. Where rows are as far apart as numbers say, loads have
    these numbers in themselves, and one pointer does for all."""
    width = panel.vectors * context.schedule.lanes
    apart = _distances(context, rows)
    moving = 1 if apart else rows
    walkers = {f"w_{r}": (f"{prefix}_{r}", step) for r in range(moving)} | {"w": (b, IntExpr.of(width))}

    def place(r: int) -> tuple[str, IntExpr]:
        return ("w_0", apart[r]) if apart else (f"w_{r}", ZERO)

    body = _multiply(context, rows, panel, place, ("w", ZERO))
    body += [p.Advance(name, by) for name, (_, by) in walkers.items()]
    starts = [p.Walker(name, context.dtype, base, ZERO) for name, (base, _) in walkers.items()]
    return [*starts, p.For("k", ZERO, context.slices.length, ONE, tuple(body), unroll=1)]


def _distances(context: TileContext, rows: int) -> list[IntExpr]:
    """Of each row of a tile from the first one, in elements; none where they are not known."""
    if context.schedule.mode == "indirect":
        return []
    starts = [pointer.offset for pointer in row_pointers(context, rows)]
    found = [start - starts[0] for start in starts]
    return found if all(f.is_static and f.value >= 0 for f in found) else []


def _tap_pointers(context: TileContext, rows: int) -> tuple[list[p.Statement], str]:
    """What a tap does before its steps, and the prefix of its rows' pointers."""
    slices, found = context.slices, context.product
    if context.schedule.mode == "indirect":
        return _redirect(context, rows), "t"
    if not slices.outer:
        return [], "a"
    offset = sum((IntExpr.of(a.name) * found.streamed.step(a) for a in slices.outer), ZERO)
    return [p.Pointer(f"t_{r}", context.dtype, f"a_{r}", offset, True) for r in range(rows)], "t"


def _redirect(context: TileContext, rows: int) -> list[p.Statement]:
    """`t_r`: the row's input at this tap, or zeros where the tap is outside."""
    *_, inner = context.product.reduction
    base = context.product.streamed.offset.substitute({inner.name: context.slices.first_step})
    return [
        p.SelectPointer(
            f"t_{r}",
            context.dtype,
            p.InRange(tuple(context.rows.condition_at(c, r) for c in context.product.streamed.conditions)),
            context.streamed_buffer,
            context.rows.at(base, r),
            ZEROS,
        )
        for r in range(rows)
    ]


def _multiply(
    context: TileContext, rows: int, panel: Panel, place: Place, b: tuple[str, IntExpr]
) -> list[p.Statement]:
    """One step of the reduction."""
    vector, lanes = context.vector, context.schedule.lanes
    pointer, offset = b
    body: list[p.Statement] = [
        p.Declare(f"b_{v}", vector, p.LoadAt(pointer, offset + v * lanes, vector), constant=True)
        for v in range(panel.vectors)
    ]
    for r in range(rows):
        element = p.LoadAt(*place(r), context.scalar)
        body.append(p.Declare(f"s_{r}", vector, p.Splat(element, vector), constant=True))
        for v in range(panel.vectors):
            acc = p.Var(f"acc_{r}_{v}", vector)
            factors = (p.Var(f"s_{r}", vector), p.Var(f"b_{v}", vector), acc)
            body.append(p.Assign(acc.name, vector, p.Op("fma", factors, vector)))
    return body
