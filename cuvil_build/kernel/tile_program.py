"""A register-tiled matrix product as a loop program.

entry = (batch entry, block of row tiles); a chunk is a group of its panels
  [packed rows]   gather the block's rows once for all panels of the call
  panel           [run-time operand] pack it
    slice         of the reduction, most often all of it
      tile        balanced: every tile has floor or ceil of the mean rows, never a short tail
        reduction one vector load per panel vector, one broadcast per row, rows x vectors FMAs
        epilogue  in the last slice: on registers, then the only store; before it, sums wait in scratch
"""

from __future__ import annotations

from collections.abc import Sequence

from cuvil_build.cuir.dtypes import INT32, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, maximum, minimum, product
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import Apply, Cast, Expr, IndexValue, Load
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.prune import prune
from cuvil_build.kernel.tile_blocks import block_count, pack_blocks, row_length
from cuvil_build.kernel.tile_context import (
    COLUMN_SUMS,
    PACKED_PANEL,
    PACKED_ROWS,
    PARTIAL,
    ROW_SCALES,
    ROW_SUMS,
    ZEROS,
    Panel,
    TileContext,
)
from cuvil_build.kernel.tile_epilogue import finish_tile, first_sums, keep_sums, resume_sums
from cuvil_build.kernel.tile_integers import has_column_sums, has_row_sums, pack_integers
from cuvil_build.kernel.tile_packed_rows import pack_rows
from cuvil_build.kernel.tile_panel import make_panel, panel_kinds, panel_packings
from cuvil_build.kernel.tile_plan import TilePlan
from cuvil_build.kernel.tile_reduce import reduce_tile, row_pointers
from cuvil_build.kernel.tile_rows import rows_of
from cuvil_build.kernel.tile_schedule import ENOUGH_TILES, LINE_BYTES
from cuvil_build.kernel.tile_slices import SLICE, slices_of

_ALIGN = LINE_BYTES


def build_tile_program(nest: Nest, plan: TilePlan) -> tuple[p.Program, dict[str, Packing]]:
    """The program, and how its constant operand must be packed (by buffer name)."""
    context = TileContext(nest, plan, rows_of(nest, plan), slices_of(plan.product, plan.schedule))
    return _Frame(context).build(), panel_packings(plan)


class _Frame:
    """The loops around tiles."""

    def __init__(self, context: TileContext) -> None:
        self.context = context
        self.found = context.product
        self.schedule = context.schedule
        self.rows = context.rows
        self.slices = context.slices
        self.tiles_per_block = self.schedule.rows_per_block // self.schedule.row_tile
        self.blocks = ceil_divide(self.rows.tiles, self.tiles_per_block)
        self.panels = context.plan.panels * product(a.extent for a in self.found.repeats)
        self.groups = ceil_divide(self.panels, self.schedule.panels_per_chunk)
        self.scratch = self._scratch()
        """Region of the scratch: (first line, lines, dtype)."""

    def build(self) -> p.Program:
        written = self.context.store.target.name
        buffers = self.context.nest.buffers()
        params = tuple(p.Param(b.name, b.dtype, b.role == "input" or b.name != written) for b in buffers)
        chunks = self.found.batches * self.blocks * self.groups
        rows = minimum(self.rows.count, self.schedule.rows_per_block)
        work = rows * self.schedule.panels_per_chunk * self.schedule.width * self.found.depth
        total = sum((lines for _, lines, _ in self.scratch.values()), ZERO) * _ALIGN
        dims = tuple(sorted(_symbols(self.context), key=lambda s: (len(s), s)))
        return prune(p.Program(params, dims, (), tuple(self._blocks()), chunks, total, work))

    def _scratch(self) -> dict[str, tuple[IntExpr, IntExpr, DType]]:
        context = self.context
        wanted: list[tuple[str, IntExpr, DType]] = []

        def want(name: str, count: IntExpr, dtype: DType = context.dtype) -> None:
            wanted.append((name, count, dtype))

        if self.found.blocks:
            blocks = block_count(context) * self.schedule.rows_per_block
            want(PACKED_ROWS, row_length(context) * self.schedule.rows_per_block, context.row_dtype)
            want(ROW_SUMS, blocks, INT32)
            want(ROW_SCALES, blocks)
        elif self.schedule.mode == "packed":
            rows = context.depth * self.schedule.rows_per_block
            want(PACKED_ROWS, rows + self.schedule.lanes, context.row_dtype)
        if has_row_sums(context):
            want(ROW_SUMS, IntExpr.of(self.schedule.rows_per_block))
        if self.slices.is_cut:
            want(PARTIAL, IntExpr.of(self.schedule.rows_per_block * self.schedule.width))
        if self.schedule.mode == "indirect":
            want(ZEROS, self.found.reduction[-1].extent)
        if not self.found.constant_panel:
            want(PACKED_PANEL, context.depth * self.schedule.width, context.panel_dtype)
            if has_column_sums(self.found, self.schedule):
                want(COLUMN_SUMS, IntExpr.of(self.schedule.width))
        placed: dict[str, tuple[IntExpr, IntExpr, DType]] = {}
        first = ZERO
        for name, count, dtype in wanted:
            lines = ceil_divide(count, _ALIGN // dtype.nbytes)
            placed[name] = (first, lines, dtype)
            first = first + lines
        return placed

    def _blocks(self) -> list[p.Statement]:
        """Chunks of one block of rows follow each other: what is packed for it serves all of them."""
        begin, end, entry = IntExpr.of("begin"), IntExpr.of("end"), IntExpr.of("entry")
        groups = self.groups if self.groups.is_static else maximum(self.groups, ONE)
        body: list[p.Statement] = [
            p.Pointer(name, dtype, "scratch", first * (_ALIGN // dtype.nbytes), False)
            for name, (first, _, dtype) in self.scratch.items()
        ]
        if ZEROS in self.scratch:
            body.append(self._zero(ZEROS, self.found.reduction[-1].extent))
        first, last = begin, end
        if groups != ONE:
            first, last = begin // groups, (end + (groups - 1)) // groups
        body.append(p.For("entry", first, last, ONE, (*self._decode_entry(entry), *self._block(groups))))
        return body

    def _decode_entry(self, entry: IntExpr) -> list[p.Statement]:
        body: list[p.Statement] = [p.SetInt("block", entry % self.blocks if self.found.batch else entry)]
        rest = entry // self.blocks
        for axis in reversed(self.found.batch):
            value = rest if axis is self.found.batch[0] else rest % axis.extent
            body.append(p.SetInt(axis.name, value))
            rest = rest // axis.extent
        return body

    def _block(self, groups: IntExpr) -> list[p.Statement]:
        tiles, entry = self.rows.tiles, IntExpr.of("entry")
        block = IntExpr.of("block")
        body: list[p.Statement] = [
            p.SetInt("first_tile", block * tiles // self.blocks),
            p.SetInt("last_tile", (block + 1) * tiles // self.blocks),
            p.SetInt("first_row", self.rows.start_of(IntExpr.of("first_tile"))),
        ]
        if self.schedule.mode == "packed":
            body += self._pack_rows()
        if self._fetches_first:
            body.append(p.SetInt("share", self._share()))
        each, first_panel, last_panel = self.schedule.panels_per_chunk, ZERO, self.panels
        if groups != ONE:
            before = entry * groups
            first_panel = maximum(IntExpr.of("begin") - before, ZERO) * each
            last_panel = minimum(self.panels, (IntExpr.of("end") - before) * each)
        if not self.found.repeats:
            return [*body, p.For("panel", first_panel, last_panel, ONE, tuple(self._panel()))]
        inner = (*self._decode_place(), *self._panel())
        return [*body, p.For("place", first_panel, last_panel, ONE, inner)]

    def _decode_place(self) -> list[p.Statement]:
        """Axes that repeat panels, and the panel."""
        place, own = IntExpr.of("place"), self.context.plan.panels
        rest = place // own
        body: list[p.Statement] = [p.SetInt("panel", place % own)]
        for axis in reversed(self.found.repeats):
            body.append(p.SetInt(axis.name, rest if axis is self.found.repeats[0] else rest % axis.extent))
            rest = rest // axis.extent
        return body

    def _pack_rows(self) -> list[p.Statement]:
        if self.found.blocks:
            return pack_blocks(self.context)
        return pack_integers(self.context) if self.found.is_integer else pack_rows(self.context)

    @property
    def _fetches_first(self) -> bool:
        """Whether a tile fetches all of its share before its steps: what it is depends on the rows."""
        return self.schedule.prefetch and self.context.fetching is None and not self.found.blocks

    def _share(self) -> IntExpr:
        """Lines of the next slice that each tile fetches."""
        lines = ceil_divide(self.slices.largest * self.schedule.width, self._line)
        tiles = IntExpr.of("last_tile") - IntExpr.of("first_tile")
        enough = ONE if self.rows.count.is_static else minimum(ONE, tiles // ENOUGH_TILES)
        return ceil_divide(lines, tiles) * enough

    @property
    def _line(self) -> int:
        return _ALIGN // self.context.panel_dtype.nbytes

    def _zero(self, pointer: str, count: IntExpr) -> p.Statement:
        at = IntExpr.of("z")
        return p.For("z", ZERO, count, ONE, (p.StoreAt(pointer, at, p.Lit(0.0, self.context.scalar)),))

    def _panel(self) -> list[p.Statement]:
        whole, last = panel_kinds(self.context.plan)
        if whole is None or last is None:
            only = whole or last
            assert only is not None
            return self._slices(only)
        panel, width = IntExpr.of("panel"), self.schedule.width
        is_whole = p.InRange(((ZERO, panel, self.found.column.extent // width),))
        return [p.If(is_whole, tuple(self._slices(whole)), tuple(self._slices(last)))]

    def _slices(self, panel: Panel) -> list[p.Statement]:
        body = make_panel(self.context, panel)
        body.append(p.SetInt("first_column", IntExpr.of("panel") * self.schedule.width))
        if not self.slices.is_cut:
            body.append(p.Pointer("b", self.context.panel_dtype, "panel_data", ZERO, True))
            return body + self._tiles(panel)
        offset = self.slices.first_point * (panel.vectors * self.schedule.lanes)
        inner = self.slices.start()
        inner.append(p.Pointer("b", self.context.panel_dtype, "panel_data", offset, True))
        inner += self._tiles(panel)
        return [*body, p.For("slice", ZERO, self.slices.count, ONE, tuple(inner))]

    def _tiles(self, panel: Panel) -> list[p.Statement]:
        if self.blocks == ONE and self.rows.count.is_static and not self.schedule.prefetch:
            return self._tiles_by_size(panel)
        tile = IntExpr.of("tile")
        inner: list[p.Statement] = [
            p.SetInt("start", self.rows.start_of(tile)),
            p.SetInt("rows", self.rows.start_of(tile + 1) - IntExpr.of("start")),
        ]
        if self._fetches_first:
            inner.append(self._fetch_share(panel))
        cases = tuple((n, tuple(self._tile(n, panel))) for n in self.rows.tile_sizes())
        inner += cases[0][1] if len(cases) == 1 else [p.Switch(IntExpr.of("rows"), cases)]
        return [p.For("tile", IntExpr.of("first_tile"), IntExpr.of("last_tile"), ONE, tuple(inner))]

    def _tiles_by_size(self, panel: Panel) -> list[p.Statement]:
        """Longer tiles first, then shorter ones, where that is known for all threads: short reductions notice
        what it costs to find a tile's first row and to choose its code."""
        loops: list[p.Statement] = []
        start, tiles = 0, max(1, self.rows.tiles.value)
        longer = self.rows.count.value % tiles
        for size in reversed(self.rows.tile_sizes()):
            count = longer if start == 0 and longer else tiles - longer
            stop = IntExpr.of(start + size * count)
            body = tuple(self._tile(size, panel))
            loops.append(p.For("start", IntExpr.of(start), stop, IntExpr.of(size), body))
            start += size * count
        return loops

    def _fetch_share(self, panel: Panel) -> p.Statement:
        """What follows the slice in memory is the next one, of this panel or the next."""
        share, line = IntExpr.of("share"), IntExpr.of("line")
        ahead = self.slices.largest * (panel.vectors * self.schedule.lanes)
        place = (IntExpr.of("tile") - IntExpr.of("first_tile")) * share + line
        return p.For("line", ZERO, share, ONE, (p.Prefetch("b", ahead + place * self._line),))

    def _tile(self, rows: int, panel: Panel) -> list[p.Statement]:
        context = self.context
        body: list[p.Statement] = []
        for r in range(rows):
            body += self.rows.decode(IntExpr.of("start") + r, f"_{r}")
        body += row_pointers(context, rows)
        body += first_sums(context, rows, panel)
        if not self.slices.is_cut:
            return [*body, *reduce_tile(context, rows, panel), *finish_tile(context, rows, panel)]
        is_later = p.InRange(((ONE, SLICE, self.slices.count),))
        is_last = p.InRange(((self.slices.count, SLICE + 1, self.slices.count + 1),))
        finish, keep = finish_tile(context, rows, panel), keep_sums(context, rows, panel)
        return [
            *body,
            p.If(is_later, tuple(resume_sums(context, rows, panel))),
            *reduce_tile(context, rows, panel),
            p.If(is_last, tuple(finish), tuple(keep)),
        ]


def _symbols(context: TileContext) -> set[str]:
    nest, found = context.nest, context.product
    axes = (*nest.axes, *nest.stages[0].axes)
    symbols: set[str] = set()
    for axis in axes:
        symbols |= axis.extent.symbols()
    for buffer in nest.buffers():
        symbols.update(*(d.symbols() for d in buffer.shape))
    symbols.update(*(o.symbols() for o in (found.streamed, found.panel)))
    symbols.update(*(i.symbols() for i in context.store.index))
    symbols.update(*(i.symbols() for i in _epilogue_indices(context.store.value)))
    return symbols - {a.name for a in axes}


def _epilogue_indices(expr: Expr) -> list[IntExpr]:
    if isinstance(expr, IndexValue):
        return [expr.index]
    if isinstance(expr, Load):
        return [i for i in expr.index if isinstance(i, IntExpr)]
    children: Sequence[Expr] = expr.args if isinstance(expr, Apply) else ()
    if isinstance(expr, Cast):
        children = (expr.value,)
    return [i for c in children for i in _epilogue_indices(c)]
