"""Products with weights of 4 bits, in sums of integers.

Rows are packed as integers with a scale for each block of steps: codes of 8 bits as they are, floats as 16
bits, which are two planes of 8 where instructions multiply bytes. Codes of weights are unpacked in registers
just before their use. A block adds, for each row and column,

    row scale * column scale * (sum x code - zero * sum x)

to a float32; the sum in brackets is exact. Rounding floats to 16 bits takes at most 2^-16 of a block's
largest from each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cuvil_build.cuir.dtypes import DTYPES, FLOAT32, INT32, UINT8
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import Load
from cuvil_build.kernel.nest import Axis
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.tile_context import PACKED_ROWS, ROW_SCALES, ROW_SUMS, Panel, TileContext
from cuvil_build.kernel.tile_operand import BLOCK, Blocks
from cuvil_build.kernel.tile_plan import TilePlan
from cuvil_build.kernel.tile_product import Product
from cuvil_build.kernel.tile_schedule import LINE_BYTES

INT8, INT16 = DTYPES["int8"], DTYPES["int16"]
_LARGEST = 127 * 256
"""Of rows of 16 bits, whose high bytes are rounded up."""
_ROUNDING, _ROUNDING_BITS = 1.5 * 2.0**23, 0x4B400000
_AHEAD = 4096
"""Bytes of a panel that are asked for before they are needed, where they come from memory."""
_UNROLLED = 4
"""Pairs of groups that are written out."""
_MIDDLE = 8
"""From codes with a sign to those without."""


# Packing, when the model is built ------------------------------------------------------------------


def block_packings(plan: TilePlan) -> dict[str, Packing]:
    found, schedule = plan.product, plan.schedule
    blocks = _blocks(found)
    width, last = schedule.width, plan.last_vectors * schedule.lanes

    def packing(index: tuple[IntExpr, ...], axes: tuple[Axis, ...]) -> Packing:
        return Packing((*found.batch, *found.repeats), axes, found.column, index, width, last)

    made = {blocks.scale.buffer.name: packing(_entries(found), _block_axes(found))}
    shift = _MIDDLE if blocks.codes.dtype.kind == "int" else 0
    of_codes = packing((blocks.codes.flat,), found.reduction)
    made[blocks.codes.load.buffer.name] = replace(
        of_codes, dtype="uint8", group=schedule.group, shift=shift, nibbles=True, block=blocks.steps
    )
    if blocks.zero:
        of_zeros = packing((_by_block(found, blocks.zero.flat),), _block_axes(found))
        made[blocks.zero.load.buffer.name] = replace(of_zeros, dtype="uint8", shift=shift, nibbles=True)
    return made


def _blocks(found: Product) -> Blocks:
    assert found.blocks is not None
    return found.blocks


def _block_axes(found: Product) -> tuple[Axis, ...]:
    """Blocks that share a scale."""
    size = _blocks(found).size
    return (Axis(BLOCK, ceil_divide(found.depth, size)),) if size else ()


def _entries(found: Product) -> tuple[IntExpr, ...]:
    scale = _blocks(found).scale
    return tuple(_by_block(found, i) for i in scale.index if isinstance(i, IntExpr))


def _by_block(found: Product, index: IntExpr) -> IntExpr:
    (step,), size = found.reduction, _blocks(found).size
    return index.substitute({step.name: IntExpr.of(BLOCK) * size}) if size else index


# Where things are ------------------------------------------------------------------------------------


def panel_pointers(context: TileContext) -> list[p.Statement]:
    """`panel_data`, `scale_data` and `zero_data`: where the panel's codes, scales and zero points start."""
    packings = block_packings(context.plan)
    blocks = _blocks(context.product)
    return [
        _panel_pointer(context, "panel_data", packings, blocks.codes.load),
        _panel_pointer(context, "scale_data", packings, blocks.scale),
        *([_panel_pointer(context, "zero_data", packings, blocks.zero.load)] if blocks.zero else []),
    ]


def _panel_pointer(context: TileContext, name: str, packings: dict[str, Packing], load: Load) -> p.Statement:
    packing = packings[load.buffer.name]
    batch = ZERO
    for axis in (*context.product.batch, *context.product.repeats):
        batch = batch * axis.extent + IntExpr.of(axis.name)
    depth = packing.stored_depth
    offset = batch * (packing.columns * depth) + IntExpr.of("panel") * (packing.width * depth)
    return p.Pointer(name, load.dtype, load.buffer.name, offset, True)


def row_length(context: TileContext) -> IntExpr:
    """Elements of a packed row: all its planes."""
    return context.depth * planes(context)


def planes(context: TileContext) -> int:
    is_split = context.row_dtype == INT8 and context.product.streamed.load.dtype != INT8
    return 2 if is_split else 1


def block_count(context: TileContext) -> IntExpr:
    """Blocks of a row."""
    return context.depth // _blocks(context.product).steps


# Packing rows ----------------------------------------------------------------------------------------


def pack_blocks(context: TileContext) -> list[p.Statement]:
    """packed_rows[row - first_row][plane][step], and each block's scale and sum; the sum is multiplied by
    what all codes are too large by, where that is one number."""
    row, (step,) = IntExpr.of("row"), context.product.reduction
    steps = _blocks(context.product).steps
    whole, rest = step.extent.value // steps, step.extent.value % steps
    lanes = context.schedule.lanes
    own = row - IntExpr.of("first_row")
    body: list[p.Statement] = [
        *context.rows.decode(row, ""),
        p.SetInt("row_at", own * row_length(context)),
        p.SetInt("blocks_at", own * block_count(context)),
    ]
    if whole:
        body.append(p.For(BLOCK, ZERO, IntExpr.of(whole), ONE, tuple(_pack_block(context, steps, lanes))))
    if rest:
        body.append(p.SetInt(BLOCK, IntExpr.of(whole)))
        body += _pack_block(context, rest, 1)
        at = IntExpr.of("row_at") + context.product.depth + IntExpr.of("e")
        clear = p.Lit(0, p.VType(context.row_dtype, 1))
        body += [
            p.For(
                "e", ZERO, IntExpr.of(steps - rest), ONE,
                (p.StoreAt(PACKED_ROWS, at + context.depth * plane, clear),),
            )
            for plane in range(planes(context))
        ]  # fmt: skip
    last = context.rows.start_of(IntExpr.of("last_tile"))
    return [p.For("row", IntExpr.of("first_row"), last, ONE, tuple(body))]


def _pack_block(context: TileContext, steps: int, lanes: int) -> list[p.Statement]:
    if context.product.streamed.load.dtype == INT8:
        return _copy_block(context, steps, lanes)
    return _round_block(context, steps, lanes)


def _round_block(context: TileContext, steps: int, lanes: int) -> list[p.Statement]:
    """Floats as integers of 16 bits. Magnitudes are compared as the integers that their bits are: what is no
    number is the largest of them, and makes the scale none. Blocks of nearly nothing are zero."""
    kind, whole = p.VType(FLOAT32, lanes), p.VType(INT32, lanes)
    scalar, integer = p.VType(FLOAT32, 1), p.VType(INT32, 1)
    peak, sums, number = p.Var("peak", whole), p.Var("sums", whole), p.Var("number", whole)
    value, scaled = p.Var("value", kind), p.Var("scaled", kind)
    read = p.Declare("value", kind, _read(context, lanes), constant=True)
    size = p.Op("bitcast", (p.Op("abs", (value,), kind),), whole)
    turns = IntExpr.of(steps // lanes)
    tops: p.Value = p.Horizontal("max", peak, integer) if lanes > 1 else peak
    total: p.Value = p.Horizontal("sum", sums, integer) if lanes > 1 else sums
    top, inverse = p.Var("top", scalar), p.Var("inverse", scalar)
    spread: p.Value = p.Splat(inverse, kind) if lanes > 1 else inverse
    is_inside = p.Op("le", (p.Op("abs", (scaled,), kind), p.Lit(_LARGEST + 1.0, kind)), _mask(lanes))
    inside = p.Op("select", (is_inside, scaled, p.Lit(0.0, kind)), kind)
    # Adding so much rounds to whole numbers, which then stand in the lowest bits.
    moved = p.Op("bitcast", (p.Op("add", (inside, p.Lit(_ROUNDING, kind)), kind),), whole)
    rounded = p.Op("sub", (moved, p.Lit(_ROUNDING_BITS, whole)), whole)
    return [
        p.Declare("peak", whole, p.Lit(0, whole)),
        p.For("e", ZERO, turns, ONE, (read, p.Assign("peak", whole, p.Op("max", (peak, size), whole)))),
        p.Declare("top", scalar, p.Op("bitcast", (tops,), scalar), constant=True),
        p.Declare("inverse", scalar, p.Op("div", (p.Lit(_LARGEST, scalar), top), scalar), constant=True),
        _keep_scale(context, p.Op("mul", (top, p.Lit(1.0 / _LARGEST, scalar)), scalar)),
        p.Declare("sums", whole, p.Lit(0, whole)),
        p.For(
            "e", ZERO, turns, ONE,
            (
                read,
                p.Declare("scaled", kind, p.Op("mul", (value, spread), kind), constant=True),
                p.Declare("number", whole, rounded, constant=True),
                *_store_number(context, number, lanes),
                p.Assign("sums", whole, p.Op("add", (sums, number), whole)),
            ),
        ),
        _keep_sum(context, total),
    ]  # fmt: skip


def _mask(lanes: int) -> p.VType:
    return p.VType(DTYPES["bool"], lanes)


def _read(context: TileContext, lanes: int) -> p.Value:
    """The row's elements from step `BLOCK` * steps + `e` * lanes on."""
    streamed, (step,) = context.product.streamed, context.product.reduction
    start = IntExpr.of(BLOCK) * _blocks(context.product).steps + IntExpr.of("e") * lanes
    base = context.rows.at(streamed.offset, None).substitute({step.name: start})
    kind = p.VType(streamed.load.dtype, lanes)
    buffer = context.streamed_buffer
    if lanes > 1 and streamed.step(step) != ONE:
        value: p.Value = p.LoadStrided(buffer, base, streamed.step(step), kind)
    else:
        value = p.LoadAt(buffer, base, kind)
    is_code = streamed.load.dtype == INT8
    return value if is_code or kind.dtype == FLOAT32 else p.Convert(value, p.VType(FLOAT32, lanes))


def _place(context: TileContext, lanes: int) -> IntExpr:
    steps = _blocks(context.product).steps
    return IntExpr.of("row_at") + IntExpr.of(BLOCK) * steps + IntExpr.of("e") * lanes


def _store_number(context: TileContext, number: p.Value, lanes: int) -> Iterator[p.Statement]:
    kind, at = p.VType(context.row_dtype, lanes), _place(context, lanes)
    yield p.StoreAt(PACKED_ROWS, at, p.Convert(number, kind))
    if planes(context) == 2:
        wide = number.type
        high = p.Op("shr", (p.Op("add", (number, p.Lit(128, wide)), wide), p.Lit(8, wide)), wide)
        yield p.StoreAt(PACKED_ROWS, at + context.depth, p.Convert(high, kind))


def _copy_block(context: TileContext, steps: int, lanes: int) -> list[p.Statement]:
    """Codes of 8 bits, with the scale that they have."""
    scale = context.product.streamed.row_scale
    assert scale is not None
    strides = scale.buffer.strides()
    offset = sum((i * s for i, s in zip(scale.index, strides, strict=True) if isinstance(i, IntExpr)), ZERO)
    factor = p.LoadAt(scale.buffer.name, context.rows.at(offset, None), p.VType(FLOAT32, 1))
    group = context.group if lanes > 1 else 1
    each = min(lanes * group, steps)
    whole = p.VType(INT32, each // group)
    sums, code = p.Var("sums", whole), p.Var("code", p.VType(INT8, each))
    stored: p.Value = code if context.row_dtype == INT8 else p.Convert(code, p.VType(context.row_dtype, each))
    ones = p.Lit(1, _as_read(context, p.Var("code", p.VType(UINT8, each))).type)
    added: p.Value = p.Dot(ones, stored, sums, whole) if group > 1 else _plus(sums, code)
    total: p.Value = p.Horizontal("sum", sums, p.VType(INT32, 1)) if whole.lanes > 1 else sums
    return [
        _keep_scale(context, factor),
        p.Declare("sums", whole, p.Lit(0, whole)),
        p.For(
            "e", ZERO, IntExpr.of(steps // each), ONE,
            (
                p.Declare("code", code.type, _read(context, each), constant=True),
                p.StoreAt(PACKED_ROWS, _place(context, each), stored),
                p.Assign("sums", whole, added),
            ),
        ),
        _keep_sum(context, total),
    ]  # fmt: skip


def _plus(sums: p.Var, code: p.Var) -> p.Value:
    return p.Op("add", (sums, p.Convert(code, sums.type)), sums.type)


def _keep_scale(context: TileContext, value: p.Value) -> p.Statement:
    return p.StoreAt(ROW_SCALES, IntExpr.of("blocks_at") + IntExpr.of(BLOCK), value)


def _keep_sum(context: TileContext, value: p.Value) -> p.Statement:
    zero = constant_zero(context)
    kind = p.VType(INT32, 1)
    if zero is not None:
        value = p.Op("mul", (value, p.Lit(-zero, kind)), kind)
    return p.StoreAt(ROW_SUMS, IntExpr.of("blocks_at") + IntExpr.of(BLOCK), value)


def constant_zero(context: TileContext) -> int | None:
    """What is taken off all codes; None where each column and block has its own."""
    blocks = _blocks(context.product)
    if blocks.zero:
        return None
    return _MIDDLE if blocks.codes.dtype.kind == "int" else 0


# The reduction ---------------------------------------------------------------------------------------


def reduce_blocks(context: TileContext, rows: int, panel: Panel) -> list[p.Statement]:
    blocks, block = _blocks(context.product), IntExpr.of(BLOCK)
    width = panel.vectors * context.schedule.lanes
    parts = range(planes(context))
    own = IntExpr.of("start") - IntExpr.of("first_row")
    body: list[p.Statement] = []
    if context.schedule.prefetch:
        stream = blocks.steps * width // 2
        ahead = [_AHEAD + n for n in range(0, stream, LINE_BYTES)]
        body += [p.Prefetch("panel_data", block * stream + n) for n in ahead]
    for r in range(rows):
        at = (own + r) * block_count(context) + block
        first: p.Value = p.LoadAt(ROW_SUMS, at, p.VType(INT32, 1))
        body.append(p.Declare(f"sum_{r}", first.type, first, constant=True))
        for v in range(panel.vectors):
            body += [p.Declare(f"part_{r}_{v}_{n}", _whole(context), _start(context, r, n)) for n in parts]
    pairs = blocks.steps // (2 * context.group)
    if pairs <= _UNROLLED:
        for pair in range(pairs):
            body += _pair(context, rows, panel, IntExpr.of(pair), f"_{pair}")
    else:
        inner = tuple(_pair(context, rows, panel, IntExpr.of("pair"), ""))
        body.append(p.For("pair", ZERO, IntExpr.of(pairs), ONE, inner, unroll=_UNROLLED))
    body += _add_block(context, rows, panel)
    return [p.For(BLOCK, ZERO, block_count(context), ONE, tuple(body), unroll=1)]


def _whole(context: TileContext) -> p.VType:
    return p.VType(INT32, context.schedule.lanes)


def _start(context: TileContext, row: int, plane: int) -> p.Value:
    """Of the sums of a block: codes are too large by a number that is the same for all of them."""
    kind = _whole(context)
    if plane or not constant_zero(context):
        return p.Lit(0, kind)
    return _spread(p.Var(f"sum_{row}", p.VType(INT32, 1)), kind)


def _spread(value: p.Value, kind: p.VType) -> p.Value:
    return p.Splat(value, kind) if kind.lanes > 1 else value


def _pair(context: TileContext, rows: int, panel: Panel, pair: IntExpr, suffix: str) -> list[p.Statement]:
    """Two groups of steps: one of each half of the block."""
    group, lanes = context.group, context.schedule.lanes
    steps = _blocks(context.product).steps
    each = lanes * group
    block = IntExpr.of(BLOCK)
    stored = p.VType(UINT8, each)
    body: list[p.Statement] = []
    for v in range(panel.vectors):
        at = block * (steps // 2 * panel.vectors * lanes) + (pair * panel.vectors + v) * each
        byte = p.Var(f"byte{suffix}_{v}", stored)
        body.append(p.Declare(byte.name, stored, p.LoadAt("panel_data", at, stored), constant=True))
        halves = (
            p.Op("bitand", (byte, p.Lit(15, stored)), stored),
            p.Op("shr", (byte, p.Lit(4, stored)), stored),
        )
        for half, value in enumerate(halves):
            read = _as_read(context, value)
            body.append(p.Declare(f"code{suffix}_{v}_{half}", read.type, read, constant=True))
    row_kind = p.VType(context.row_dtype, each)
    code_kind = _as_read(context, p.Var("code", stored)).type
    for half in range(2):
        step = block * steps + half * (steps // 2) + pair * group
        for r in range(rows):
            for n in range(planes(context)):
                spread = p.SplatGroup(f"a_{r}", step + context.depth * n, group, row_kind)
                name = f"x{suffix}_{half}_{r}_{n}"
                body.append(p.Declare(name, row_kind, spread, constant=True))
                for v in range(panel.vectors):
                    part = p.Var(f"part_{r}_{v}_{n}", _whole(context))
                    code = p.Var(f"code{suffix}_{v}_{half}", code_kind)
                    dot = p.Dot(code, p.Var(name, row_kind), part, part.type)
                    body.append(p.Assign(part.name, part.type, dot))
    return body


def _as_read(context: TileContext, value: p.Value) -> p.Value:
    """Codes without a sign, in the dtype that instructions multiply."""
    dtype = context.schedule.code_dtype
    kind = p.VType(DTYPES[dtype], value.type.lanes)
    if dtype == UINT8.name:
        return value
    return p.Op("bitcast", (value,), kind) if dtype == INT8.name else p.Convert(value, kind)


def _add_block(context: TileContext, rows: int, panel: Panel) -> list[p.Statement]:
    lanes, kind, whole = context.schedule.lanes, context.vector, _whole(context)
    blocks, block = _blocks(context.product), IntExpr.of(BLOCK)
    own = IntExpr.of("start") - IntExpr.of("first_row")
    body: list[p.Statement] = []
    width = panel.vectors * lanes
    shared = block * blocks.steps // blocks.size if blocks.size else ZERO
    for v in range(panel.vectors):
        at = shared * width + v * lanes
        scale: p.Value = p.LoadAt("scale_data", at, p.VType(blocks.scale.dtype, lanes))
        body.append(p.Declare(f"scale_{v}", kind, p.Convert(scale, kind), constant=True))
        if blocks.zero:
            zero = p.Convert(p.LoadAt("zero_data", at, p.VType(UINT8, lanes)), whole)
            body.append(p.Declare(f"zero_{v}", whole, zero, constant=True))
    for r in range(rows):
        factor = p.LoadAt(ROW_SCALES, (own + r) * block_count(context) + block, p.VType(FLOAT32, 1))
        body.append(p.Declare(f"factor_{r}", kind, _spread(factor, kind), constant=True))
        for v in range(panel.vectors):
            total: p.Value = p.Var(f"part_{r}_{v}_0", whole)
            if planes(context) == 2:
                high = p.Op("mul", (p.Var(f"part_{r}_{v}_1", whole), p.Lit(256, whole)), whole)
                total = p.Op("add", (total, high), whole)
            if blocks.zero:
                taken = _spread(p.Var(f"sum_{r}", p.VType(INT32, 1)), whole)
                moved = p.Op("mul", (p.Var(f"zero_{v}", whole), taken), whole)
                total = p.Op("sub", (total, moved), whole)
            scaled = p.Op("mul", (p.Convert(total, kind), p.Var(f"factor_{r}", kind)), kind)
            acc = p.Var(f"acc_{r}_{v}", kind)
            body.append(p.Assign(acc.name, kind, p.Op("fma", (scaled, p.Var(f"scale_{v}", kind), acc), kind)))
    return body
