"""How many rows a sliding group takes at once, and what of them stays from one step to the next.

At step `w` the producer computes rows `w * block …`; then the window computes every row whose last tap is
there. The buffer between them holds, of the step's view of the producer's rows,

    kept    rows of the steps before that the window still needs (at the first step: padding)
    block   new rows
    after   padding behind the last row
"""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.int_expr import IntExpr, ceil_divide, maximum, minimum
from cuvil_build.kernel.sliding_match import Slide

CHANNELS = 16
"""In a block: one panel of what most CPUs multiply with, and a cache line of float32."""
KEPT_BYTES = 32 * 1024
"""What a point keeps: about a first-level cache, since lowering knows no target."""
MOST_BYTES = 128 * 1024
"""What it may keep where the fewest possible rows need more: half of a common second-level cache."""
_TYPICAL = 64
"""Assumed for a free extent."""


@dataclass(frozen=True, slots=True)
class Steps:
    slide: Slide
    block: int
    """New rows in a step: a multiple of the stride."""
    kept: int
    behind: int
    """How many of the window's rows wait for the next step."""

    @property
    def count(self) -> IntExpr:
        return ceil_divide(self.slide.source, self.block)

    @property
    def halves(self) -> int:
        """Parts of the plane that are points of their own: two where both have as many steps."""
        return 2 if self.count.is_static and self.count.value and self.count.value % 2 == 0 else 1

    @property
    def rows(self) -> IntExpr:
        """Of the buffer."""
        return self.slide.pad_after + (self.kept + self.block)

    def new(self, step: IntExpr) -> IntExpr:
        """Rows that the producer computes in a step."""
        rows = self.slide.source
        if rows.is_static and rows.value % self.block == 0:
            return IntExpr.of(self.block)
        return minimum(self.block, rows - step * self.block)

    def first(self, step: IntExpr) -> IntExpr:
        """The first row that the window computes in a step."""
        return step * (self.block // self.slide.stride) - minimum(1, step) * self.behind

    def done(self, step: IntExpr) -> IntExpr:
        """How many rows the window computes in a step: what waits is computed in the last one too."""
        whole = self.block // self.slide.stride
        last = maximum(0, step + 2 - self.count)
        more = self.slide.extent - self.count * whole + self.behind
        return minimum(1, step) * self.behind + (whole - self.behind) + last * more

    def taps_from(self, step: IntExpr) -> IntExpr:
        """Where in the buffer the first tap of the step's first row is."""
        return (1 - minimum(1, step)) * (self.slide.stride * self.behind)


def plan_steps(rows: Slide, columns: Slide | None, channels: int, itemsize: int) -> Steps | None:
    """None where even the fewest rows are more than a cache keeps. `itemsize`: bytes of an element."""
    row_bytes = _row_bytes(columns, channels, itemsize)
    behind = max(0, -((rows.pad - rows.reach + rows.stride) // rows.stride))
    kept = rows.pad + rows.stride * behind
    least = _multiple(max(kept, rows.stride), rows.stride)
    after = rows.pad_after.value if rows.pad_after.is_static else rows.reach
    source = rows.source.value if rows.source.is_static else None
    most = max(least, (KEPT_BYTES // row_bytes - kept - after) // rows.stride * rows.stride)
    if (kept + least + after) * row_bytes > MOST_BYTES:
        return None
    return Steps(rows, _even(source, least, most, rows.stride), kept, behind)


def _even(rows: int | None, least: int, most: int, stride: int) -> int:
    """Up to `most` rows; such that all steps have as many, if that is not many fewer."""
    if rows is None:
        return most
    most = min(most, max(least, _multiple(rows, stride)))
    fitting = [n for n in range(least, most + 1, stride) if rows % n == 0 and n * 2 >= most]
    return fitting[-1] if fitting else most


def _multiple(number: int, of: int) -> int:
    return -(-number // of) * of


def _row_bytes(columns: Slide | None, channels: int, itemsize: int) -> int:
    count = 1
    if columns is not None:
        count = columns.pad + (columns.source.value if columns.source.is_static else _TYPICAL)
    return count * min(CHANNELS, channels) * itemsize
