"""How a matrix product is cut into register tiles: a schedule as data, chosen from the target's numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from cuvil_build.cuir.dtypes import DTYPES
from cuvil_build.cuir.int_expr import ONE, IntExpr, ceil_divide, product
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.tile_operand import any_mentions
from cuvil_build.kernel.tile_product import Product

LINE_BYTES = 64
"""Of a cache."""


@dataclass(frozen=True, slots=True)
class TileSchedule:
    mode: str
    """How rows are read: `direct`, `indirect` (redirected per tap) or `packed` (gathered first)."""
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
    group: int = 1
    """Steps of the reduction that are taken at once: neighbours in a row, and in a column of a panel."""
    row_dtype: str = ""
    """Of packed rows of 8-bit integers, as instructions read them; empty: the product's own."""
    code_dtype: str = ""
    """Of codes of 4 bits, as instructions read them."""
    fetch_rows: bool = False
    """Whether tiles fetch the next cache line of their rows."""

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


SHORT = 8
"""A run of steps that is shorter is not worth a loop of its own."""


def choose_tiles(found: Product, numbers: Numbers) -> TileSchedule:
    if found.blocks:
        return _choose_blocks(found, numbers)
    mode = _integer_mode(found, numbers) if found.is_integer else row_mode(found)
    lanes = numbers.lanes(found.dtype.nbytes)
    vectors = _vectors(found.row_count, found.column.extent, lanes, numbers)
    row_tile = _row_tile(vectors, numbers)
    block = _tiles_per_block(found, mode, row_tile, numbers)
    block = _even_blocks(found, block, row_tile, numbers)
    chosen = TileSchedule(mode, row_tile, vectors, lanes, block * row_tile, 1, numbers.tile_unroll)
    if found.is_integer:
        # Sums that are instructions of their own are added up in another order by compilers where they see
        # several steps, for which there are no registers.
        unroll = numbers.tile_unroll if numbers.dot_operations == 1 else 1
        chosen = replace(chosen, group=numbers.dot_group, row_dtype=numbers.dot_rows, unroll=unroll)
    tiles = _tiles_at_once(found, chosen)
    chosen = replace(chosen, k_slice=_k_slice(found, chosen, tiles, numbers))
    chosen = replace(chosen, prefetch=_prefetches(found, chosen, tiles, numbers))
    chosen = replace(chosen, fetch_rows=_fetches_rows(found, chosen, numbers))
    return replace(chosen, panels_per_chunk=_panels_per_chunk(found, chosen))


_PANEL_BYTES = 64
"""Of float32 columns: how wide panels of 4-bit weights are, whatever the vectors."""


def _choose_blocks(found: Product, numbers: Numbers) -> TileSchedule:
    """Tiles of rows as registers hold their sums: a float for each, and those of a block as integers."""
    lanes = numbers.lanes(found.dtype.nbytes)
    vectors = max(1, min(numbers.tile_vectors, _PANEL_BYTES // numbers.vector_bytes))
    is_wide = numbers.dot_rows == "int16"
    planes = 1 if is_wide or found.streamed.row_scale else 2
    free = numbers.vector_registers - 4 - 2 * vectors
    row_tile = max(1, free // (vectors * (1 + planes)))
    tiles = found.row_count.is_static and -(-found.row_count.value // row_tile)
    block = _tiles_per_block(found, "packed", row_tile, numbers)
    chosen = TileSchedule(
        "packed", row_tile, vectors, lanes, block * row_tile, 1, 1,
        prefetch=tiles is False or tiles == 1,
        group=numbers.dot_group,
        row_dtype="int16" if is_wide else "int8",
        code_dtype="int16" if is_wide else numbers.dot_rows,
    )  # fmt: skip
    return replace(chosen, panels_per_chunk=_panels_per_chunk(found, chosen))


def _integer_mode(found: Product, numbers: Numbers) -> str:
    """Rows lie as instructions read them where they are bytes of the right sign, whole groups of them side by
    side, none of them outside of its plane, and nobody asks for their sums."""
    streamed, panel = found.streamed, found.panel
    inner = found.reduction[-1]
    lies = streamed.load.dtype.name == numbers.dot_rows and len(found.reduction) == 1
    is_whole = inner.extent.is_static and inner.extent.value % numbers.dot_group == 0
    is_plain = not streamed.conditions and streamed.step(inner) == ONE
    has_sums = panel.zero is not None or panel.load.dtype.name != "int8"
    return "direct" if lies and is_whole and is_plain and not has_sums else "packed"


def row_mode(found: Product) -> str:
    """The cheapest way to read rows of floats that is right."""
    inner = found.reduction[-1]
    short = inner.extent.is_static and inner.extent.value < SHORT and len(found.reduction) > 1
    if not found.streamed.conditions:
        return "packed" if short and sum(a.extent != ONE for a in found.rows) > 1 else "direct"
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
        vectors = min(vectors, _evenly(-(-columns.value // lanes), vectors))
    return max(1, vectors)


def _evenly(count: int, most: int) -> int:
    """Vectors of each panel where panels of at most so many share them as evenly as they can."""
    return -(-count // max(1, -(-count // most)))


def _row_tile(vectors: int, numbers: Numbers) -> int:
    """As many rows as registers allow, within the target's own number of accumulators."""
    accumulators = numbers.tile_rows * numbers.tile_vectors
    scalars_per_row = 1 if numbers.fma_broadcast == "lane" else 0
    free = numbers.vector_registers - 2 - vectors
    return max(1, min(accumulators // vectors, free // (vectors + scalars_per_row)))


_LEAST_REUSE = 24
"""Tiles that use a panel before it leaves the nearer caches, whatever their rows take: fewer wait for it."""
_MOST_TILES = 64
_FEW_TILES = 40
"""Up to so many tiles, what a panel costs to bring in shows: it is cut into slices, and fetched ahead."""
ENOUGH_TILES = 6
"""Of free rows, whose tiles ask for their share of the next slice at once: fewer would wait for it."""
_SHARING_TILES = 2
"""Of rows that are known: a tile asks for a line now and then."""
_FEW_TILES_OF_TAPS = 16
"""The same where tiles find their rows anew for each tap."""
_FAST = 16.0
"""Bytes of a panel in a cycle that the second-level cache does not keep up with: panels are cut however many
tiles use them."""


def _tiles_per_block(found: Product, mode: str, row_tile: int, numbers: Numbers) -> int:
    """Tiles whose rows take half of the second-level cache."""
    # Neighbouring rows of a convolution share most of their taps: a row brings in its channels once.
    fresh = found.reduction[-1:] if mode == "indirect" else found.reduction
    depth = product(a.extent for a in fresh)
    if not depth.is_static:
        return _LEAST_REUSE
    fitting = numbers.l2 // 2 // max(1, depth.value * _row_bytes(found, numbers)) // row_tile
    return max(_LEAST_REUSE, min(fitting, _MOST_TILES))


def panel_rate(row_tile: int, numbers: Numbers) -> float:
    """Bytes of a panel that a full tile reads in a cycle."""
    return numbers.vector_bytes * numbers.fma_ports / row_tile


_CHUNK_WORK = 250_000
"""Multiply-adds that make a chunk worth handing to a thread: a few microseconds."""
_LEAST_TILES = 4
"""Of a block that is only there for threads to share rows instead of columns."""
_BLOCKS_WANTED = 16


def _even_blocks(found: Product, most: int, row_tile: int, numbers: Numbers) -> int:
    """Tiles of a block. Where weights are fewer bytes than what they are multiplied with and give, threads
    share rows: so each finds most of what it reads in its own cache, if the kernels before and after this one
    share rows as well. Weights that the first-level cache holds cost nothing to read again; else each thread
    of two has one block."""
    columns, depth = found.column.extent, found.depth
    is_static = all(n.is_static for n in (found.row_count, columns, depth))
    if not is_static or not found.constant_panel or found.batch:
        return most
    rows, weights = found.row_count.value, columns.value * depth.value
    tiles = -(-rows // row_tile)
    if weights >= rows * (found.reduction[-1].extent.value + columns.value):
        return most
    wanted = _BLOCKS_WANTED if weights * found.dtype.nbytes <= numbers.l1 // 2 else 2
    wanted = min(wanted, tiles // _LEAST_TILES, rows * weights // _CHUNK_WORK)
    if wanted < 2:
        return most
    blocks = max(-(-tiles // most), wanted)
    return -(-tiles // (-(-blocks // 2) * 2))


def _row_bytes(found: Product, numbers: Numbers) -> int:
    """Of one step of a row, as tiles read it."""
    return DTYPES[numbers.dot_rows].nbytes if found.is_integer else found.dtype.nbytes


def _tiles_at_once(found: Product, chosen: TileSchedule) -> int:
    """Of one block, where the number of rows is known; else most of them."""
    most = chosen.rows_per_block // chosen.row_tile
    if not found.row_count.is_static:
        return most
    tiles = -(-found.row_count.value // chosen.row_tile)
    return -(-tiles // max(1, -(-tiles // most)))


def _k_slice(found: Product, chosen: TileSchedule, tiles: int, numbers: Numbers) -> int:
    """Slices of a panel, all about as long. Where the target says nothing else, one at work and the next take
    three quarters of the first-level cache, rows and waiting sums the rest."""
    if not numbers.tile_slices or not found.depth.is_static:
        return 0
    taps = chosen.mode != "packed" and len(found.reduction) > 1
    fitting = max(chosen.lanes, _slice_bytes(found, numbers) // (chosen.width * found.panel_bytes))
    most = _FEW_TILES_OF_TAPS if taps else _few_tiles(found, chosen, numbers)
    if not _least_tiles(found) <= tiles <= most or found.depth.value < 2 * fitting:
        return 0
    steps = found.reduction[-1].extent.value if taps else found.depth.value
    if steps <= fitting:
        return fitting
    even = -(-steps // -(-steps // fitting))
    return -(-even // chosen.lanes) * chosen.lanes


def _least_tiles(found: Product) -> int:
    return _SHARING_TILES if found.row_count.is_static and not found.is_integer else ENOUGH_TILES


def _slice_bytes(found: Product, numbers: Numbers) -> int:
    share = numbers.l1 * 3 // 8
    return share if found.is_integer else numbers.tile_slice_bytes or share


def _few_tiles(found: Product, chosen: TileSchedule, numbers: Numbers) -> int:
    fast = not found.is_integer and panel_rate(chosen.row_tile, numbers) > _FAST
    return _MOST_TILES if fast else _FEW_TILES


def _prefetches(found: Product, chosen: TileSchedule, tiles: int, numbers: Numbers) -> bool:
    """A slice that fills the first-level cache leaves no room for the next one. The only tile of a block
    fetches a little ahead of itself, but for a single row, which runs at the speed of memory."""
    if not numbers.tile_slices or not found.constant_panel:
        return False
    if tiles == 1 and found.row_count.is_static and not found.is_integer:
        nbytes = found.depth * found.column.extent * found.dtype.nbytes
        is_large = not nbytes.is_static or nbytes.value > numbers.l1
        return is_large and found.row_count.value > 1 and chosen.unroll > 1
    if chosen.panels(found) == ONE and not chosen.k_slice:
        return False
    if not _least_tiles(found) <= tiles <= _few_tiles(found, chosen, numbers):
        return False
    slice_bytes = (chosen.k_slice or found.depth.value) * chosen.width * found.panel_bytes
    return slice_bytes <= max(numbers.l1 // 2, _slice_bytes(found, numbers))


_WAY_BYTES = 4096
"""Of first-level caches: addresses so far apart share their places."""
_FEW_PLACES = 4
_LONG_ROW = 8
"""Cache lines of a row from which on it is worth while to fetch them."""


def _fetches_rows(found: Product, chosen: TileSchedule, numbers: Numbers) -> bool:
    """Rows at a stride that leaves them few places in the first-level cache push each other out: it shows
    where panels keep the second-level cache busy."""
    if panel_rate(chosen.row_tile, numbers) <= _FAST or not numbers.tile_slices:
        return False
    if chosen.mode != "direct" or not found.rows or found.is_integer:
        return False
    itemsize = found.dtype.nbytes
    stride, depth = found.streamed.step(found.rows[-1]), found.reduction[-1].extent
    if not stride.is_static or not depth.is_static or depth.value * itemsize < _LONG_ROW * LINE_BYTES:
        return False
    return stride.value != 0 and _WAY_BYTES // gcd(stride.value * itemsize, _WAY_BYTES) < _FEW_PLACES


_CHUNKS_WANTED = 64
"""Several for each of sixteen threads."""
_PACKED_COLUMNS = 128
"""Of a chunk whose thread may have to pack the rows first."""


def _panels_per_chunk(found: Product, chosen: TileSchedule) -> int:
    """Enough panels for a chunk to be worth its start, few enough to leave chunks for every thread."""
    if not chosen.panels(found).is_static:
        return 4
    panels, row_count = chosen.panels(found).value, found.row_count
    panels *= product(a.extent for a in found.repeats).value
    most = chosen.rows_per_block
    blocks = -(-row_count.value // most) if row_count.is_static else 1
    rows = -(-row_count.value // max(1, blocks)) if row_count.is_static else most
    depth = found.depth.value if found.depth.is_static else 256
    worth = max(1, _CHUNK_WORK // max(1, rows * chosen.width * depth))
    batches = found.batches.value if found.batches.is_static else 1
    spread = max(1, panels * blocks * batches // _CHUNKS_WANTED)
    columns = _PACKED_COLUMNS * (2 if found.blocks else 1)
    least = -(-columns // chosen.width) if chosen.mode == "packed" else 1
    return min(panels, max(worth, spread, least))
