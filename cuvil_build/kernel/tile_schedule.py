"""How a matrix product is cut into register tiles: a schedule as data, chosen from the target's numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import ONE, IntExpr, ceil_divide, product
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.tile_operand import any_mentions
from cuvil_build.kernel.tile_product import Product


@dataclass(frozen=True, slots=True)
class TileSchedule:
    mode: str
    """How rows are read: `direct`, `indirect` (redirected per tap), `packed` (gathered first, row by row) or
    `interleaved` (copied first, the rows of a tile side by side, a vector of each in turn)."""
    row_tile: int
    vectors: int
    """Vectors of columns in one panel."""
    lanes: int
    rows_per_block: int
    """Rows whose streamed data stay in the second-level cache while panels pass; whole tiles."""
    panels_per_chunk: int
    unroll: int
    """Steps of the reduction in one turn of the innermost loop; 1 forbids the compiler to unroll."""
    k_slice: int = 0
    """Most steps of the reduction that one pass of a panel's tiles takes; between passes their sums wait in
    scratch. 0: all steps in one pass."""
    prefetch: bool = False
    """Whether tiles fetch the panel's next slice, each its share of it."""

    @property
    def rows_are_packed(self) -> bool:
        return self.mode in ("packed", "interleaved")

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    def last_vectors(self, found: Product) -> int:
        """Of the last panel, where the number of columns is known; else `vectors`."""
        columns = found.column.extent
        rest = columns.value % self.width if columns.is_static else 0
        return -(-rest // self.lanes) if rest else self.vectors

    def panels(self, found: Product) -> IntExpr:
        return ceil_divide(found.column.extent, self.width)


def choose_tiles(found: Product, numbers: Numbers) -> TileSchedule:
    mode = row_mode(found)
    lanes = numbers.lanes(found.dtype.nbytes)
    vectors = _vectors(found.row_count, found.column.extent, lanes, numbers)
    row_tile = _row_tile(vectors, numbers)
    # Neighbouring rows of a convolution share most of their taps: a row brings in its channels once.
    fresh = found.reduction[-1:] if mode == "indirect" else found.reduction
    depth = product(a.extent for a in fresh)
    block = _rows_per_block(depth, row_tile, found.dtype.nbytes, numbers)
    chosen = TileSchedule(mode, row_tile, vectors, lanes, block, 1, numbers.tile_unroll)
    return replace(chosen, panels_per_chunk=_panels_per_chunk(found, chosen))


def row_mode(found: Product) -> str:
    """The cheapest way to read rows that is right."""
    inner = found.reduction[-1]
    short = inner.extent.is_static and inner.extent.value < 8 and len(found.reduction) > 1
    if not found.streamed.conditions:
        return "packed" if short else "direct"
    contiguous = found.streamed.step(inner) == ONE and not any_mentions(found.streamed.conditions, inner)
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


def _panels_per_chunk(found: Product, chosen: TileSchedule) -> int:
    """Enough panels for a chunk to be worth its start, few enough to leave chunks for every thread."""
    if chosen.mode == "packed" or not chosen.panels(found).is_static:
        return chosen.panels(found).value if chosen.panels(found).is_static else 4
    panels, row_count = chosen.panels(found).value, found.row_count
    rows = min(row_count.value, chosen.rows_per_block) if row_count.is_static else chosen.rows_per_block
    depth = found.depth.value if found.depth.is_static else 256
    worth = max(1, _CHUNK_WORK // max(1, rows * chosen.width * depth))
    blocks = -(-row_count.value // rows) if row_count.is_static else 1
    spread = max(1, panels * blocks // _CHUNKS_WANTED)
    return min(panels, max(worth, spread))
