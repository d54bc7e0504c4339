"""Finds the matrix product in a nest and plans its register tiles.

A product has rows (axes of the streamed operand alone), columns (an axis of the panel operand alone), a
reduction, and batch axes that both have. The streamed operand is read element by element and broadcast;
the panel operand is packed into panels of a few vectors of columns, at build time where it is constant.
A convolution is the same product whose rows are output pixels and whose reduction walks taps and
channels; taps outside the input read zeros through redirected row pointers (M. Dukhan, "The Indirect
Convolution Algorithm", 2019), or rows are first gathered into a small packed block.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, product
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.expr import Apply, Const, Expr, Load, Within
from cuvil_build.kernel.nest import Axis, Nest, children, parts
from cuvil_build.kernel.numbers import Numbers

Condition = tuple[IntExpr, IntExpr, IntExpr]


@dataclass(frozen=True, slots=True)
class Operand:
    load: Load
    conditions: tuple[Condition, ...]
    offset: IntExpr
    """In elements, affine in every axis."""

    def step(self, axis: Axis) -> IntExpr:
        found = self.offset.coefficient(axis.name)
        assert found is not None
        return found

    def symbols(self) -> frozenset[str]:
        return self.offset.symbols().union(*(i.symbols() for c in self.conditions for i in c))


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product as found in a nest."""

    streamed: Operand
    panel: Operand
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    column: Axis
    reduction: tuple[Axis, ...]
    """Slowest first, in the order of packing."""
    dtype: DType


@dataclass(frozen=True, slots=True)
class TilePlan:
    product: Product
    mode: str
    """How rows are read: `direct`, `indirect` (redirected per tap) or `packed` (gathered first)."""
    row_tile: int
    vectors: int
    """Vectors of columns in one panel."""
    lanes: int
    last_vectors: int
    """Of the last panel, where the number of columns is known; else `vectors`."""
    rows_per_block: int
    """Rows whose streamed data stay in the second-level cache while panels pass."""
    panels_per_chunk: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def row_count(self) -> IntExpr:
        return product(a.extent for a in self.product.rows)

    @property
    def depth(self) -> IntExpr:
        return product(a.extent for a in self.product.reduction)

    @property
    def panels(self) -> IntExpr:
        return ceil_divide(self.product.column.extent, self.width)


def plan_tiles(nest: Nest, numbers: Numbers) -> TilePlan | None:
    """The plan, or None when the nest is no product that tiles help."""
    found = _find_product(nest)
    if found is None or _is_empty(nest) or not _is_free(nest):
        return None
    mode = _row_mode(found)
    lanes = numbers.lanes(found.dtype.nbytes)
    rows = product(a.extent for a in found.rows)
    columns = found.column.extent
    vectors = _vectors(rows, columns, lanes, numbers)
    row_tile = _row_tile(vectors, numbers)
    last = vectors
    if columns.is_static:
        rest = columns.value % (vectors * lanes)
        last = -(-rest // lanes) if rest else vectors
    # Neighbouring rows of a convolution share most of their taps: a row brings in its channels once.
    fresh = found.reduction[-1:] if mode == "indirect" else found.reduction
    depth = product(a.extent for a in fresh)
    block = _rows_per_block(depth, row_tile, found.dtype.nbytes, numbers)
    plan = TilePlan(found, mode, row_tile, vectors, lanes, last, block, 1)
    return TilePlan(found, mode, row_tile, vectors, lanes, last, block, _panels_per_chunk(plan))


def _is_empty(nest: Nest) -> bool:
    return any(a.extent == ZERO for a in (*nest.axes, *nest.stages[0].axes))


def _is_free(nest: Nest) -> bool:
    """Tiles run in any order, on any thread, with columns in the lanes."""
    access = analyse(nest)
    return all(access.may_be_parallel(a.name) for a in nest.axes)


def _find_product(nest: Nest) -> Product | None:
    if len(nest.stages) != 2 or nest.sequential:
        return None
    total, store = nest.stages
    plain = total.kind == "sum" and not total.target.shape and store.kind == "store" and not store.axes
    factors = total.value
    if not plain or not isinstance(factors, Apply) or factors.function != "mul":
        return None
    if not factors.dtype.is_float or factors.dtype.bits < 32 or not total.axes:
        return None
    axes = (*nest.axes, *total.axes)
    left, right = (_operand(f, axes) for f in factors.args)
    if left is None or right is None or not _can_be_epilogue(store.value, nest.axes):
        return None
    output = _offset(Load(store.target, store.index), nest.axes)
    if output is None:
        return None
    candidates = [
        p for p in (_orient(nest, left, right, factors.dtype), _orient(nest, right, left, factors.dtype)) if p
    ]
    return max(candidates, key=lambda p: _suitability(p, output), default=None)


def _suitability(found: Product, output: IntExpr) -> tuple[bool, bool]:
    contiguous = output.coefficient(found.column.name) == ONE
    return (contiguous, found.panel.load.buffer.constant)


def _orient(nest: Nest, streamed: Operand, panel: Operand, dtype: DType) -> Product | None:
    if panel.conditions:
        return None
    mine, other = streamed.symbols(), panel.symbols()
    columns = [a for a in nest.axes if a.name in other and a.name not in mine]
    rows = [a for a in nest.axes if a.name in mine and a.name not in other]
    batch = [a for a in nest.axes if a.name in mine and a.name in other]
    # An axis of neither operand only repeats rows: an output of size one, most often.
    rows += [a for a in nest.axes if a.name not in mine and a.name not in other]
    rows.sort(key=nest.axes.index)
    # Columns that a reshape has cut into several axes: panels of the longest, the others repeat them.
    columns.sort(key=lambda a: _column_order(a, panel))
    batch += columns[1:]
    columns = columns[:1]
    if len(columns) != 1 or any(_touches(streamed.conditions, a) for a in (*columns, *batch)):
        return None
    if any(a.name not in other for a in nest.stages[0].axes):
        return None
    reduction = tuple(sorted(nest.stages[0].axes, key=lambda a: _slowest_first(streamed.step(a))))
    if panel.load.buffer.constant and not all(a.extent.is_static for a in (*batch, *columns, *reduction)):
        return None
    return Product(streamed, panel, tuple(batch), tuple(rows), columns[0], reduction, dtype)


def _column_order(axis: Axis, panel: Operand) -> tuple[int, tuple[int, int, str]]:
    """Longest first; among equals the one that is contiguous."""
    first = 0 if not axis.extent.is_static else -axis.extent.value
    kind, step, text = _slowest_first(panel.step(axis))
    return first, (kind, -step, text)


def _slowest_first(step: IntExpr) -> tuple[int, int, str]:
    """Contiguous axes last; free strides count as large."""
    return (0, 0, str(step)) if not step.is_static else (1, -step.value, "")


def _touches(conditions: Iterable[Condition], axis: Axis) -> bool:
    return any(axis.name in part.symbols() for condition in conditions for part in condition)


def _operand(expr: Expr, axes: tuple[Axis, ...]) -> Operand | None:
    conditions: tuple[Condition, ...] = ()
    if isinstance(expr, Within):
        zero = isinstance(expr.otherwise, Const) and expr.otherwise.value == 0
        if not zero or not isinstance(expr.value, Load):
            return None
        conditions, expr = expr.conditions, expr.value
    if not isinstance(expr, Load) or expr.buffer.role == "temp":
        return None
    offset = _offset(expr, axes)
    if offset is None:
        return None
    affine = all(p.coefficient(a.name) is not None for c in conditions for p in c for a in axes)
    return Operand(expr, conditions, offset) if affine else None


def _offset(load: Load, axes: tuple[Axis, ...]) -> IntExpr | None:
    """Element offset of a load; None unless it is affine in the axes."""
    total = ZERO
    for index, stride in zip(load.index, load.buffer.strides(), strict=True):
        if not isinstance(index, IntExpr):
            return None
        total = total + index * stride
    names = {a.name for a in axes}
    for axis in axes:
        factor = total.coefficient(axis.name)
        if factor is None or factor.symbols() & names:
            return None
    return total


def _can_be_epilogue(expr: Expr, axes: tuple[Axis, ...]) -> bool:
    for part in parts(expr):
        if isinstance(part, Within):
            return False
        if isinstance(part, Load) and part.buffer.role != "temp" and _offset(part, axes) is None:
            return False
    return _tree_size(expr, {}) <= _LARGEST_EPILOGUE


_LARGEST_EPILOGUE = 256
"""Parts, each as often as it is used: tiles write the value out for each of their vectors."""


def _tree_size(expr: Expr, known: dict[int, int]) -> int:
    if id(expr) not in known:
        known[id(expr)] = 1 + sum(_tree_size(c, known) for c in children(expr))
    return known[id(expr)]


def _row_mode(found: Product) -> str:
    inner = found.reduction[-1]
    short = inner.extent.is_static and inner.extent.value < 8 and len(found.reduction) > 1
    if not found.streamed.conditions:
        return "packed" if short else "direct"
    contiguous = found.streamed.step(inner) == ONE and not _touches(found.streamed.conditions, inner)
    return "indirect" if contiguous and not short else "packed"


def _vectors(rows: IntExpr, columns: IntExpr, lanes: int, numbers: Numbers) -> int:
    """The target's own count, more where few rows would leave the multiply-add ports idle, fewer where
    there are few columns."""
    vectors = numbers.tile_vectors
    if rows.is_static:
        needed = numbers.fma_ports * numbers.fma_latency
        while (
            rows.value * vectors < needed
            and rows.value * (vectors + 1) + vectors + 2 < numbers.vector_registers
        ):
            vectors += 1
    if columns.is_static:
        vectors = min(vectors, -(-columns.value // lanes))
    return max(1, vectors)


def _row_tile(vectors: int, numbers: Numbers) -> int:
    """As many rows as registers allow, within the target's own number of accumulators."""
    accumulators = numbers.tile_rows * numbers.tile_vectors
    scalars_per_row = 1 if numbers.fma_broadcast == "lane" else 0
    free = numbers.vector_registers - 2 - vectors
    return max(1, min(accumulators // vectors, free // (vectors + scalars_per_row)))


def _rows_per_block(depth: IntExpr, row_tile: int, itemsize: int, numbers: Numbers) -> int:
    if not depth.is_static:
        return row_tile * 16
    fitting = numbers.l2 // 2 // max(1, depth.value * itemsize)
    return max(1, min(fitting // row_tile, 64)) * row_tile


_CHUNK_WORK = 250_000
"""Multiply-adds that make a chunk worth handing to a thread: about 10 microseconds."""
_CHUNKS_WANTED = 16


def _panels_per_chunk(plan: TilePlan) -> int:
    """Enough panels for a chunk to be worth its start, few enough to leave chunks for every thread."""
    if plan.mode == "packed" or not plan.panels.is_static:
        return plan.panels.value if plan.panels.is_static else 4
    panels = plan.panels.value
    rows = min(plan.row_count.value, plan.rows_per_block) if plan.row_count.is_static else plan.rows_per_block
    depth = plan.depth.value if plan.depth.is_static else 256
    worth = max(1, _CHUNK_WORK // max(1, rows * plan.width * depth))
    blocks = -(-plan.row_count.value // rows) if plan.row_count.is_static else 1
    spread = max(1, panels * blocks // _CHUNKS_WANTED)
    return min(panels, max(worth, spread))
