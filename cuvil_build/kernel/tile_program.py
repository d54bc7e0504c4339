"""A register-tiled matrix product as a loop program.

chunk = (batch entry, block of row tiles, group of panels)
  [packed rows]   gather the block's rows once
  panel           [run-time operand] pack it
    tile          balanced: every tile has floor or ceil of the mean rows, never a short tail
      reduction   one vector load per panel vector, one broadcast per row, rows x vectors FMAs
      epilogue    on registers, then the only store
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cuvil_build.cuir.dtypes import BOOL, INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, minimum, product
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import COMPARE, LOGIC, Apply, Cast, Const, Expr, IndexValue, Load
from cuvil_build.kernel.nest import Axis, Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.prune import prune
from cuvil_build.kernel.tile_plan import Condition, TilePlan

PACKED_ROWS, PACKED_PANEL, ZEROS, SPILL = "packed_rows", "packed_panel", "zeros", "spill"
_ALIGN = 64


def build_tile_program(nest: Nest, plan: TilePlan, numbers: Numbers) -> tuple[p.Program, dict[str, Packing]]:
    """The program, and how its constant operand must be packed (by buffer name)."""
    return _Builder(nest, plan, numbers).build()


@dataclass(frozen=True, slots=True)
class _Panel:
    """One kind of panel: whole, or the last one."""

    vectors: int
    columns: IntExpr
    """That exist; the rest of the vectors is padding."""

    def whole_vectors(self, lanes: int) -> int:
        """Vectors that may be stored as they are."""
        return min(self.vectors, self.columns.value // lanes) if self.columns.is_static else 0


class _Builder:
    def __init__(self, nest: Nest, plan: TilePlan, numbers: Numbers) -> None:
        self.nest = nest
        self.plan = plan
        self.found = plan.product
        self.numbers = numbers
        self.dtype = self.found.dtype
        self.scalar = p.VType(self.dtype, 1)
        self.vector = p.VType(self.dtype, plan.lanes)
        self.store = nest.stages[1]
        self.row_count = plan.row_count
        self.tiles = ceil_divide(self.row_count, plan.row_tile)
        self.tiles_per_block = plan.rows_per_block // plan.row_tile
        self.blocks = ceil_divide(self.tiles, self.tiles_per_block)
        self.groups = ceil_divide(plan.panels, plan.panels_per_chunk)
        self.constant_panel = self.found.panel.load.buffer.constant
        self.row_axes = _merge_rows(nest, plan)
        self.scratch: dict[str, tuple[IntExpr, IntExpr]] = {}
        """Region of the scratch: (offset, elements)."""

    # Frame ---------------------------------------------------------------------------------------

    def build(self) -> tuple[p.Program, dict[str, Packing]]:
        packings = {self.found.panel.load.buffer.name: self._packing()} if self.constant_panel else {}
        self._reserve_scratch()
        body: list[p.Statement] = [
            p.For("chunk", IntExpr.of("begin"), IntExpr.of("end"), ONE, tuple(self._chunk()))
        ]
        buffers = self.nest.buffers()
        params = tuple(
            p.Param(b.name, b.dtype, b.role == "input" or b.name not in self._written()) for b in buffers
        )
        batches = product(a.extent for a in self.found.batch)
        chunks = batches * self.blocks * self.groups
        rows = minimum(self.row_count, self.plan.rows_per_block)
        work = rows * self.plan.panels_per_chunk * self.plan.width * self.plan.depth
        total = sum((n for _, n in self.scratch.values()), ZERO) * self.dtype.nbytes
        dims = tuple(sorted(self._symbols(), key=lambda s: (len(s), s)))
        return prune(p.Program(params, dims, (), tuple(body), chunks, total, work)), packings

    def _written(self) -> frozenset[str]:
        return frozenset({self.store.target.name})

    def _symbols(self) -> set[str]:
        found: set[str] = set()
        for axis in (*self.nest.axes, *self.nest.stages[0].axes):
            found |= axis.extent.symbols()
        for buffer in self.nest.buffers():
            found.update(*(d.symbols() for d in buffer.shape))
        names = {a.name for a in (*self.nest.axes, *self.nest.stages[0].axes)}
        operands = (self.found.streamed, self.found.panel)
        found.update(*(o.symbols() for o in operands))
        found.update(*(i.symbols() for i in self.store.index))
        found.update(*(i.symbols() for i in _epilogue_indices(self.store.value)))
        return found - names

    def _packing(self) -> Packing:
        load = self.found.panel.load
        index = tuple(i for i in load.index if isinstance(i, IntExpr))
        return Packing(
            self.found.batch, self.found.reduction, self.found.column, index,
            self.plan.width, self.plan.last_vectors * self.plan.lanes,
        )  # fmt: skip

    def _reserve_scratch(self) -> None:
        depth = self.plan.depth
        wanted: list[tuple[str, IntExpr]] = []
        if self.plan.mode == "packed":
            wanted.append((PACKED_ROWS, depth * self.plan.rows_per_block))
        if self.plan.mode == "indirect":
            wanted.append((ZEROS, self.found.reduction[-1].extent))
        if not self.constant_panel:
            wanted.append((PACKED_PANEL, depth * self.plan.width))
        offset = ZERO
        step = _ALIGN // self.dtype.nbytes
        for name, count in wanted:
            padded = ceil_divide(count, step) * step
            self.scratch[name] = (offset, padded)
            offset = offset + padded

    def _chunk(self) -> list[p.Statement]:
        block, group, tiles = IntExpr.of("block"), IntExpr.of("group"), self.tiles
        body = self._decode_chunk()
        for name, (offset, _) in self.scratch.items():
            body.append(p.Pointer(name, self.dtype, "scratch", offset, False))
        if ZEROS in self.scratch:
            body.append(self._zero(ZEROS, self.found.reduction[-1].extent))
        first = block * self.tiles_per_block
        body.append(p.SetInt("first_tile", first))
        body.append(p.SetInt("last_tile", minimum(tiles, first + self.tiles_per_block)))
        body.append(p.SetInt("first_row", self._row_of(IntExpr.of("first_tile"))))
        if self.plan.mode == "packed":
            body += self._pack_rows()
        first_panel = group * self.plan.panels_per_chunk
        last_panel = minimum(self.plan.panels, first_panel + self.plan.panels_per_chunk)
        body.append(p.For("panel", first_panel, last_panel, ONE, tuple(self._panel())))
        return body

    def _decode_chunk(self) -> list[p.Statement]:
        rest = IntExpr.of("chunk")
        body: list[p.Statement] = [p.SetInt("group", rest % self.groups)]
        body.append(p.SetInt("block", rest // self.groups % self.blocks))
        rest = rest // self.groups // self.blocks
        for axis in reversed(self.found.batch):
            value = rest if axis is self.found.batch[0] else rest % axis.extent
            body.append(p.SetInt(axis.name, value))
            rest = rest // axis.extent
        return body

    def _row_of(self, tile: IntExpr) -> IntExpr:
        """First row of a tile: tiles share all rows evenly."""
        return tile * self.row_count // self.tiles if not self.tiles.is_static or self.tiles.value else ZERO

    def _zero(self, pointer: str, count: IntExpr) -> p.Statement:
        at = IntExpr.of("z")
        return p.For("z", ZERO, count, ONE, (p.StoreAt(pointer, at, p.Lit(0.0, self.scalar)),))

    # Packing at run time ----------------------------------------------------------------------------

    def _pack_rows(self) -> list[p.Statement]:
        """packed_rows[row - first_row][reduction] for the rows of the block."""
        row, target = IntExpr.of("row"), IntExpr.of("packed_at")
        reduction = self.found.reduction
        *outer, inner = reduction
        inner_conditions = [c for c in self.found.streamed.conditions if _mentions(c, inner)]
        outer_conditions = [c for c in self.found.streamed.conditions if not _mentions(c, inner)]
        element = IntExpr.of(inner.name)
        base = self._at_row(self.found.streamed.offset, None)
        copy = p.StoreAt(PACKED_ROWS, target + element, p.LoadAt(self._streamed_buffer(), base, self.scalar))
        clear = p.StoreAt(PACKED_ROWS, target + element, p.Lit(0.0, self.scalar))
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
        start = (row - IntExpr.of("first_row")) * self.plan.depth + depth_index
        nest: tuple[p.Statement, ...] = (p.SetInt("packed_at", start), loop)
        for axis in reversed(outer):
            nest = (p.For(axis.name, ZERO, axis.extent, ONE, nest),)
        nest = (*self._decode_row(row, ""), *nest)
        return [p.For("row", IntExpr.of("first_row"), self._row_of(IntExpr.of("last_tile")), ONE, nest)]

    def _pack_panel(self, panel: _Panel) -> list[p.Statement]:
        """packed_panel[reduction][column] of a run-time operand; missing columns are zero."""
        operand, column = self.found.panel, self.found.column
        element, width = IntExpr.of("column"), panel.vectors * self.plan.lanes
        depth_index = ZERO
        for axis in self.found.reduction:
            depth_index = depth_index * axis.extent + IntExpr.of(axis.name)
        target = depth_index * width
        source = operand.offset.substitute({column.name: IntExpr.of("panel") * self.plan.width + element})
        if operand.step(column) == ONE and panel.columns == IntExpr.of(width):
            start = source.substitute({"column": ZERO})
            body: tuple[p.Statement, ...] = tuple(
                p.StoreAt(
                    PACKED_PANEL,
                    target + v * self.plan.lanes,
                    p.LoadAt(operand.load.buffer.name, start + v * self.plan.lanes, self.vector),
                )
                for v in range(panel.vectors)
            )
            return [self._reduction_loops(body)]
        # Column by column: the operand is most often contiguous along the reduction.
        copy = p.StoreAt(
            PACKED_PANEL, target + element, p.LoadAt(operand.load.buffer.name, source, self.scalar)
        )
        clear = p.StoreAt(PACKED_PANEL, target + element, p.Lit(0.0, self.scalar))
        statements: list[p.Statement] = [
            p.For("column", ZERO, panel.columns, ONE, (self._reduction_loops((copy,)),))
        ]
        if panel.columns != IntExpr.of(width):
            statements.append(
                p.For("column", panel.columns, IntExpr.of(width), ONE, (self._reduction_loops((clear,)),))
            )
        return statements

    def _reduction_loops(self, body: tuple[p.Statement, ...]) -> p.Statement:
        for axis in reversed(self.found.reduction):
            body = (p.For(axis.name, ZERO, axis.extent, ONE, body),)
        assert isinstance(body[0], p.For)
        return body[0]

    # Panels and tiles -------------------------------------------------------------------------------

    def _panel(self) -> list[p.Statement]:
        columns, width = self.found.column.extent, self.plan.width
        whole = _Panel(self.plan.vectors, IntExpr.of(width))
        if columns.is_static and columns.value % width == 0:
            return self._tiles(whole)
        rest = columns - columns // width * width if columns.is_static else columns % width
        last = _Panel(self.plan.last_vectors, rest)
        if columns.is_static and columns.value < width:
            return self._tiles(last)
        panel = IntExpr.of("panel")
        is_whole = p.InRange(((ZERO, panel, columns // width),))
        return [p.If(is_whole, tuple(self._tiles(whole)), tuple(self._tiles(last)))]

    def _tiles(self, panel: _Panel) -> list[p.Statement]:
        body: list[p.Statement] = []
        source = self.found.panel.load.buffer.name
        if self.constant_panel:
            offset = self._batch_index() * self._packing().columns * self.plan.depth
            offset = offset + IntExpr.of("panel") * self.plan.width * self.plan.depth
            body.append(p.Pointer("b", self.dtype, source, offset, True))
        else:
            body += self._pack_panel(panel)
            body.append(p.Pointer("b", self.dtype, PACKED_PANEL, ZERO, True))
        body.append(p.SetInt("first_column", IntExpr.of("panel") * self.plan.width))
        tile = IntExpr.of("tile")
        inner: list[p.Statement] = [
            p.SetInt("start", self._row_of(tile)),
            p.SetInt("rows", self._row_of(tile + 1) - IntExpr.of("start")),
        ]
        cases = tuple((n, tuple(self._tile(n, panel))) for n in self._tile_sizes())
        inner += cases[0][1] if len(cases) == 1 else [p.Switch(IntExpr.of("rows"), cases)]
        body.append(p.For("tile", IntExpr.of("first_tile"), IntExpr.of("last_tile"), ONE, tuple(inner)))
        return body

    def _batch_index(self) -> IntExpr:
        total = ZERO
        for axis in self.found.batch:
            total = total * axis.extent + IntExpr.of(axis.name)
        return total

    def _tile_sizes(self) -> list[int]:
        if not self.row_count.is_static:
            return list(range(1, self.plan.row_tile + 1))
        rows, tiles = self.row_count.value, max(1, self.tiles.value)
        return sorted({max(1, rows // tiles), max(1, -(-rows // tiles))})

    def _tile(self, rows: int, panel: _Panel) -> list[p.Statement]:
        body: list[p.Statement] = []
        for r in range(rows):
            body += self._decode_row(IntExpr.of("start") + r, f"_{r}")
        body += self._row_pointers(rows)
        for r in range(rows):
            for v in range(panel.vectors):
                body.append(p.Declare(f"acc_{r}_{v}", self.vector, p.Lit(0.0, self.vector)))
        body += self._reduce(rows, panel)
        body += self._epilogue(rows, panel)
        return body

    def _decode_row(self, row: IntExpr, suffix: str) -> list[p.Statement]:
        """The rows' axes from a flat row number, as `<axis><suffix>`."""
        statements: list[p.Statement] = []
        rest = row
        for axis in reversed(self.row_axes):
            value = rest if axis is self.row_axes[0] else rest % axis.extent
            statements.append(p.SetInt(axis.name + suffix, value))
            rest = rest // axis.extent
        return statements

    def _at_row(self, expr: IntExpr, row: int | None) -> IntExpr:
        """At one row of a tile, or at the current row of the block (None)."""
        suffix = "" if row is None else f"_{row}"
        kept = {a.name for a in self.row_axes}
        names = {name: IntExpr.of(name + suffix) for name in kept}
        dropped = {a.name: ZERO for a in self.found.rows if a.name not in kept}
        return expr.substitute(dropped | names)

    def _streamed_buffer(self) -> str:
        return self.found.streamed.load.buffer.name

    def _row_pointers(self, rows: int) -> list[p.Statement]:
        """`a_r`: where a row's data start; indirect rows get theirs per tap."""
        if self.plan.mode == "indirect":
            return []
        if self.plan.mode == "packed":
            start = IntExpr.of("start") - IntExpr.of("first_row")
            return [
                p.Pointer(f"a_{r}", self.dtype, PACKED_ROWS, (start + r) * self.plan.depth, True)
                for r in range(rows)
            ]
        zero = {a.name: ZERO for a in self.found.reduction}
        base = self.found.streamed.offset.substitute(zero)
        buffer = self._streamed_buffer()
        return [p.Pointer(f"a_{r}", self.dtype, buffer, self._at_row(base, r), True) for r in range(rows)]

    # Reduction --------------------------------------------------------------------------------------

    def _reduce(self, rows: int, panel: _Panel) -> list[p.Statement]:
        width = panel.vectors * self.plan.lanes
        if self.plan.mode == "packed":
            k = IntExpr.of("k")
            body = self._multiply(rows, panel, k, k * width)
            return [p.For("k", ZERO, self.plan.depth, ONE, tuple(body), unroll=self.numbers.tile_unroll)]
        *outer, inner = self.found.reduction
        taps = ZERO
        for axis in outer:
            taps = taps * axis.extent + IntExpr.of(axis.name)
        k = IntExpr.of(inner.name)
        if self.plan.mode == "direct":
            step = [(a, self.found.streamed.step(a)) for a in self.found.reduction]
            offset = sum((IntExpr.of(a.name) * s for a, s in step), ZERO)
        else:
            offset = k
        before: list[p.Statement] = []
        panel_pointer = "b"
        if outer:
            panel_pointer = "b_tap"
            before.append(p.Pointer("b_tap", self.dtype, "b", taps * inner.extent * width, True))
        if self.plan.mode == "indirect":
            before += self._redirect(rows)
        elif outer:
            tap_offset = sum((IntExpr.of(a.name) * s for a, s in step[:-1]), ZERO)
            before += [p.Pointer(f"t_{r}", self.dtype, f"a_{r}", tap_offset, True) for r in range(rows)]
            offset = k * step[-1][1]
        prefix = "t" if outer or self.plan.mode == "indirect" else "a"
        body = self._multiply(rows, panel, offset, k * width, prefix, panel_pointer)
        loop: tuple[p.Statement, ...] = (
            *before,
            p.For(inner.name, ZERO, inner.extent, ONE, tuple(body), unroll=self.numbers.tile_unroll),
        )
        for axis in reversed(outer):
            loop = (p.For(axis.name, ZERO, axis.extent, ONE, loop),)
        return list(loop)

    def _redirect(self, rows: int) -> list[p.Statement]:
        """`t_r`: the row's input at this tap, or zeros where the tap is outside."""
        *_, inner = self.found.reduction
        base = self.found.streamed.offset.substitute({inner.name: ZERO})
        return [
            p.SelectPointer(
                f"t_{r}",
                self.dtype,
                p.InRange(tuple(self._condition_at(c, r) for c in self.found.streamed.conditions)),
                self._streamed_buffer(),
                self._at_row(base, r),
                ZEROS,
            )
            for r in range(rows)
        ]

    def _condition_at(self, condition: Condition, row: int) -> Condition:
        low, index, high = (self._at_row(part, row) for part in condition)
        return low, index, high

    def _multiply(
        self, rows: int, panel: _Panel, a_offset: IntExpr, b_offset: IntExpr, prefix: str = "a", b: str = "b"
    ) -> list[p.Statement]:
        body: list[p.Statement] = [
            p.Declare(
                f"b_{v}", self.vector, p.LoadAt(b, b_offset + v * self.plan.lanes, self.vector), constant=True
            )
            for v in range(panel.vectors)
        ]
        for r in range(rows):
            element = p.LoadAt(f"{prefix}_{r}", a_offset, self.scalar)
            body.append(p.Declare(f"s_{r}", self.vector, p.Splat(element, self.vector), constant=True))
            for v in range(panel.vectors):
                acc = p.Var(f"acc_{r}_{v}", self.vector)
                factors = (p.Var(f"s_{r}", self.vector), p.Var(f"b_{v}", self.vector), acc)
                body.append(p.Assign(acc.name, self.vector, p.Op("fma", factors, self.vector)))
        return body

    # Epilogue ---------------------------------------------------------------------------------------

    def _epilogue(self, rows: int, panel: _Panel) -> list[p.Statement]:
        body: list[p.Statement] = []
        lanes = self.plan.lanes
        whole = panel.whole_vectors(lanes)
        for r in range(rows):
            for v in range(whole):
                column = IntExpr.of("first_column") + v * lanes
                result = self._value(self.store.value, r, column, p.Var(f"acc_{r}_{v}", self.vector))
                body.append(self._store(r, column, result))
        if whole == panel.vectors:
            return body
        return body + self._spilled(rows, panel, whole)

    def _spilled(self, rows: int, panel: _Panel, whole: int) -> list[p.Statement]:
        """Columns of vectors that are not full: through memory, one by one."""
        lanes = self.plan.lanes
        stride = (panel.vectors - whole) * lanes
        body: list[p.Statement] = [p.LocalArray(SPILL, self.dtype, rows * stride)]
        for r in range(rows):
            for v in range(whole, panel.vectors):
                at = IntExpr.of(r * stride + (v - whole) * lanes)
                body.append(p.StoreAt(SPILL, at, p.Var(f"acc_{r}_{v}", self.vector)))
        lane = IntExpr.of("lane")
        inner: list[p.Statement] = []
        for r in range(rows):
            column = IntExpr.of("first_column") + whole * lanes + lane
            total = p.LoadAt(SPILL, lane + r * stride, self.scalar)
            inner.append(self._store(r, column, self._value(self.store.value, r, column, total)))
        body.append(p.For("lane", ZERO, panel.columns - whole * lanes, ONE, tuple(inner), unroll=1))
        return body

    def _store(self, row: int, column: IntExpr, value: p.Value) -> p.Statement:
        offset, step = self._address(Load(self.store.target, self.store.index), row, column)
        name = self.store.target.name
        if value.type.lanes == 1 or step == ONE:
            return p.StoreAt(name, offset, value)
        return p.StoreStrided(name, offset, step, value)

    def _address(self, load: Load, row: int, column: IntExpr) -> tuple[IntExpr, IntExpr]:
        """(offset of the first lane, elements from lane to lane)."""
        total = ZERO
        for index, stride in zip(load.index, load.buffer.strides(), strict=True):
            assert isinstance(index, IntExpr)
            total = total + index * stride
        step = total.coefficient(self.found.column.name)
        assert step is not None
        return self._at_row(total, row).substitute({self.found.column.name: column}), step

    def _value(self, expr: Expr, row: int, column: IntExpr, total: p.Value) -> p.Value:
        """The epilogue's value for as many lanes as `total` has."""
        lanes = total.type.lanes
        if isinstance(expr, Load):
            if expr.buffer.role == "temp":
                return total
            return self._load(expr, row, column, lanes)
        if isinstance(expr, Const):
            return p.Lit(expr.value, p.VType(expr.dtype, lanes))
        if isinstance(expr, IndexValue):
            return self._index_value(expr, row, column, lanes)
        if isinstance(expr, Cast):
            inner = self._value(expr.value, row, column, total)
            return p.Convert(inner, p.VType(expr.dtype, lanes))
        assert isinstance(expr, Apply), expr
        args = tuple(self._value(a, row, column, total) for a in expr.args)
        is_mask = expr.function in COMPARE or expr.function in LOGIC or expr.dtype == BOOL
        return p.Op(expr.function, args, p.VType(BOOL if is_mask else expr.dtype, lanes))

    def _load(self, load: Load, row: int, column: IntExpr, lanes: int) -> p.Value:
        offset, step = self._address(load, row, column)
        scalar = p.VType(load.dtype, 1)
        if lanes == 1:
            return p.LoadAt(load.buffer.name, offset, scalar)
        if step == ZERO:
            return p.Splat(p.LoadAt(load.buffer.name, offset, scalar), p.VType(load.dtype, lanes))
        if step == ONE:
            return p.LoadAt(load.buffer.name, offset, p.VType(load.dtype, lanes))
        return p.LoadStrided(load.buffer.name, offset, step, p.VType(load.dtype, lanes))

    def _index_value(self, expr: IndexValue, row: int, column: IntExpr, lanes: int) -> p.Value:
        at = self._at_row(expr.index, row).substitute({self.found.column.name: column})
        first: p.Value = p.IntValue(at, p.VType(INT64, 1))
        if lanes == 1:
            return first
        wide = p.VType(INT64, lanes)
        spread: p.Value = p.Splat(first, wide)
        step = expr.index.coefficient(self.found.column.name)
        assert step is not None
        if step == ZERO:
            return spread
        scaled: p.Value = p.Op(
            "mul", (p.Iota(wide), p.Splat(p.IntValue(step, p.VType(INT64, 1)), wide)), wide
        )
        return p.Op("add", (spread, scaled), wide)


def _mentions(condition: Condition, axis: Axis) -> bool:
    return any(axis.name in part.symbols() for part in condition)


def _epilogue_indices(expr: Expr) -> list[IntExpr]:
    if isinstance(expr, IndexValue):
        return [expr.index]
    if isinstance(expr, Load):
        return [i for i in expr.index if isinstance(i, IntExpr)]
    children: Sequence[Expr] = expr.args if isinstance(expr, Apply) else ()
    if isinstance(expr, Cast):
        children = (expr.value,)
    return [i for c in children for i in _epilogue_indices(c)]


def _merge_rows(nest: Nest, plan: TilePlan) -> tuple[Axis, ...]:
    """Row axes as the tiles walk them: neighbours that every access steps through evenly are one axis.

    The merged axis keeps the inner one's name and its accesses, since a step of the outer axis equals
    `extent` steps of the inner one; the outer one stays at zero.
    """
    merged: list[Axis] = []
    for axis in plan.product.rows:
        if merged and _is_even(nest, plan, merged[-1], axis):
            merged[-1] = replace(axis, extent=merged[-1].extent * axis.extent)
        else:
            merged.append(axis)
    return tuple(merged)


def _is_even(nest: Nest, plan: TilePlan, outer: Axis, inner: Axis) -> bool:
    conditions = plan.product.streamed.conditions
    if any(_mentions(c, outer) or _mentions(c, inner) for c in conditions):
        return False
    inner_extent = next(a.extent for a in plan.product.rows if a.name == inner.name)
    for offset in _row_offsets(nest, plan):
        slow, fast = offset.coefficient(outer.name), offset.coefficient(inner.name)
        if slow is None or fast is None or slow != fast * inner_extent:
            return False
    return True


def _row_offsets(nest: Nest, plan: TilePlan) -> list[IntExpr]:
    store = nest.stages[1]
    found = [plan.product.streamed.offset]
    pending: list[Expr] = [Load(store.target, store.index), store.value]
    while pending:
        expr = pending.pop()
        if isinstance(expr, Load) and expr.buffer.role != "temp":
            strides = expr.buffer.strides()
            found.append(sum((i * s for i, s in zip(expr.index, strides) if isinstance(i, IntExpr)), ZERO))
        elif isinstance(expr, IndexValue):
            found.append(expr.index)
        elif isinstance(expr, Apply):
            pending += expr.args
        elif isinstance(expr, Cast):
            pending.append(expr.value)
    return found
