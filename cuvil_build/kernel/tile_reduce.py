"""The reduction of one register tile: vector loads of the panel, broadcasts of the rows, multiply-adds."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel import program as p
from cuvil_build.kernel.tile_context import PACKED_ROWS, ZEROS, Panel, TileContext


def row_pointers(context: TileContext, rows: int) -> list[p.Statement]:
    """`a_r`: where a row's data start; indirect rows get theirs per tap."""
    if context.schedule.mode == "indirect":
        return []
    if context.schedule.mode == "packed":
        start = IntExpr.of("start") - IntExpr.of("first_row")
        return [
            p.Pointer(f"a_{r}", context.dtype, PACKED_ROWS, (start + r) * context.product.depth, True)
            for r in range(rows)
        ]
    zero = {a.name: ZERO for a in context.product.reduction}
    base = context.product.streamed.offset.substitute(zero)
    buffer = context.streamed_buffer
    return [p.Pointer(f"a_{r}", context.dtype, buffer, context.rows.at(base, r), True) for r in range(rows)]


def reduce_tile(context: TileContext, rows: int, panel: Panel) -> list[p.Statement]:
    width = panel.vectors * context.schedule.lanes
    if context.schedule.mode == "packed":
        k = IntExpr.of("k")
        body = _multiply(context, rows, panel, k, k * width)
        return [p.For("k", ZERO, context.product.depth, ONE, tuple(body), unroll=context.schedule.unroll)]
    *outer, inner = context.product.reduction
    taps = ZERO
    for axis in outer:
        taps = taps * axis.extent + IntExpr.of(axis.name)
    k = IntExpr.of(inner.name)
    if context.schedule.mode == "direct":
        step = [(a, context.product.streamed.step(a)) for a in context.product.reduction]
        offset = sum((IntExpr.of(a.name) * s for a, s in step), ZERO)
    else:
        offset = k
    before: list[p.Statement] = []
    panel_pointer = "b"
    if outer:
        panel_pointer = "b_tap"
        before.append(p.Pointer("b_tap", context.dtype, "b", taps * inner.extent * width, True))
    if context.schedule.mode == "indirect":
        before += _redirect(context, rows)
    elif outer:
        tap_offset = sum((IntExpr.of(a.name) * s for a, s in step[:-1]), ZERO)
        before += [p.Pointer(f"t_{r}", context.dtype, f"a_{r}", tap_offset, True) for r in range(rows)]
        offset = k * step[-1][1]
    prefix = "t" if outer or context.schedule.mode == "indirect" else "a"
    body = _multiply(context, rows, panel, offset, k * width, prefix, panel_pointer)
    loop: tuple[p.Statement, ...] = (
        *before,
        p.For(inner.name, ZERO, inner.extent, ONE, tuple(body), unroll=context.schedule.unroll),
    )
    for axis in reversed(outer):
        loop = (p.For(axis.name, ZERO, axis.extent, ONE, loop),)
    return list(loop)


def _redirect(context: TileContext, rows: int) -> list[p.Statement]:
    """`t_r`: the row's input at this tap, or zeros where the tap is outside."""
    *_, inner = context.product.reduction
    base = context.product.streamed.offset.substitute({inner.name: ZERO})
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
    context: TileContext,
    rows: int,
    panel: Panel,
    a_offset: IntExpr,
    b_offset: IntExpr,
    prefix: str = "a",
    b: str = "b",
) -> list[p.Statement]:
    body: list[p.Statement] = [
        p.Declare(
            f"b_{v}",
            context.vector,
            p.LoadAt(b, b_offset + v * context.schedule.lanes, context.vector),
            constant=True,
        )
        for v in range(panel.vectors)
    ]
    for r in range(rows):
        element = p.LoadAt(f"{prefix}_{r}", a_offset, context.scalar)
        body.append(p.Declare(f"s_{r}", context.vector, p.Splat(element, context.vector), constant=True))
        for v in range(panel.vectors):
            acc = p.Var(f"acc_{r}_{v}", context.vector)
            factors = (p.Var(f"s_{r}", context.vector), p.Var(f"b_{v}", context.vector), acc)
            body.append(p.Assign(acc.name, context.vector, p.Op("fma", factors, context.vector)))
    return body
