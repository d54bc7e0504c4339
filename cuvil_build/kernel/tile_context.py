"""What the parts of a tile program share: the nest, its plan, its rows, and names of pointers."""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.dtypes import DTYPES, UINT8, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide
from cuvil_build.kernel import program as p
from cuvil_build.kernel.nest import Nest, Stage
from cuvil_build.kernel.tile_plan import TilePlan
from cuvil_build.kernel.tile_product import Product
from cuvil_build.kernel.tile_rows import Rows
from cuvil_build.kernel.tile_schedule import LINE_BYTES, TileSchedule
from cuvil_build.kernel.tile_slices import Slices

PACKED_ROWS, PACKED_PANEL, ZEROS, SPILL = "packed_rows", "packed_panel", "zeros", "spill"
_SHORTEST_RUN = 8
_NEAR_BYTES = 8192
ROW_SUMS, COLUMN_SUMS, ROW_SCALES = "row_sums", "column_sums", "row_scales"
PARTIAL = "partial"
"""Sums of the panel's tiles between slices: an output may share memory with an operand."""


@dataclass(frozen=True, slots=True)
class TileContext:
    nest: Nest
    plan: TilePlan
    rows: Rows
    slices: Slices

    @property
    def product(self) -> Product:
        return self.plan.product

    @property
    def schedule(self) -> TileSchedule:
        return self.plan.schedule

    @property
    def store(self) -> Stage:
        return self.nest.stages[1]

    @property
    def dtype(self) -> DType:
        return self.product.dtype

    @property
    def scalar(self) -> p.VType:
        return p.VType(self.dtype, 1)

    @property
    def vector(self) -> p.VType:
        return p.VType(self.dtype, self.schedule.lanes)

    @property
    def fetching(self) -> Fetching | None:
        """None: tiles fetch nothing, or all of their share at their start."""
        schedule, slices = self.schedule, self.slices
        if not (schedule.prefetch or schedule.fetch_rows) or schedule.unroll == 1:
            return None
        if not self.rows.count.is_static:
            return None
        if self.product.is_integer or self.product.blocks:
            return None
        if not self.product.depth.is_static or slices.most_steps < _SHORTEST_RUN:
            return None
        if not schedule.prefetch:
            line = LINE_BYTES // self.dtype.nbytes
            return Fetching(line, 0, 0, 0, 0) if slices.most_steps >= line else None
        blocks = -(-self.rows.count.value // schedule.rows_per_block)
        tiles = max(1, self.rows.tiles.value // max(1, blocks))
        lines = -(-slices.largest.value * schedule.width * self.dtype.nbytes // LINE_BYTES)
        share, run = -(-lines // tiles), _SHORTEST_RUN
        while slices.most_taps * (slices.most_steps // (2 * run)) >= share:
            run *= 2
        near = _NEAR_BYTES if tiles == 1 and not slices.is_cut else 0
        longer = (n for n in (run, 2 * run) if n <= slices.most_steps)
        return min((self._fetching(n, share, near) for n in longer), key=lambda f: f.lines * f.runs)

    def _fetching(self, run: int, share: int, near: int) -> Fetching:
        runs_per_tap = self.slices.most_steps // run
        runs = self.slices.most_taps * runs_per_tap
        return Fetching(run, runs_per_tap, runs, -(-share // runs), near)

    @property
    def group(self) -> int:
        """Steps of the reduction that are taken at once."""
        return self.schedule.group

    @property
    def row_dtype(self) -> DType:
        """Of packed rows."""
        return DTYPES[self.schedule.row_dtype] if self.schedule.row_dtype else self.dtype

    @property
    def panel_dtype(self) -> DType:
        """Of packed panels: as instructions read them where they are packed as the kernel runs."""
        if self.product.blocks:
            return UINT8
        if not self.product.is_integer:
            return self.dtype
        if self.product.constant_panel:
            return self.product.panel.load.dtype
        return DTYPES["int16" if self.row_dtype.name == "int16" else "int8"]

    @property
    def depth(self) -> IntExpr:
        """Steps of a packed row or panel: whole groups, or whole blocks."""
        if self.product.blocks:
            steps = self.product.blocks.steps
            return ceil_divide(self.product.depth, steps) * steps
        return ceil_divide(self.product.depth, self.group) * self.group

    @property
    def streamed_buffer(self) -> str:
        return self.product.streamed.load.buffer.name


@dataclass(frozen=True, slots=True)
class Fetching:
    """How a tile fetches its share of the next slice: some lines before each run of steps."""

    run: int
    """Steps."""
    runs_per_tap: int
    runs: int
    """Of the longest slice."""
    lines: int
    """In each run."""
    near_bytes: int
    """How far ahead the only tile fetches what itself reads soon; 0: tiles fetch the next slice."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One kind of panel: whole, or the last one."""

    vectors: int
    columns: IntExpr
    """That exist; the rest of the vectors is padding."""

    def whole_vectors(self, lanes: int) -> int:
        """Vectors that may be stored as they are."""
        return min(self.vectors, self.columns.value // lanes) if self.columns.is_static else 0


def depth_index(found: Product) -> IntExpr:
    """Where the point of the reduction stands in the order of packing."""
    at = ZERO
    for axis in found.reduction:
        at = at * axis.extent + IntExpr.of(axis.name)
    return at


def reduction_loops(found: Product, body: tuple[p.Statement, ...]) -> p.Statement:
    for axis in reversed(found.reduction):
        body = (p.For(axis.name, ZERO, axis.extent, ONE, body),)
    assert isinstance(body[0], p.For)
    return body[0]
