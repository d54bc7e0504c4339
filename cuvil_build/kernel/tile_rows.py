"""Rows of a register-tiled product: how flat row numbers become axes, and how tiles share them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import ZERO, IntExpr, ceil_divide
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import Apply, Cast, Expr, IndexValue, Load
from cuvil_build.kernel.nest import Axis, Nest
from cuvil_build.kernel.tile_operand import Condition, any_mentions
from cuvil_build.kernel.tile_plan import TilePlan


@dataclass(frozen=True, slots=True)
class Rows:
    axes: tuple[Axis, ...]
    """As the tiles walk them: merged where every access steps through them evenly."""
    dropped: tuple[str, ...]
    """Axes that have gone into their neighbour."""
    count: IntExpr
    tile: int
    """Most rows of a tile."""

    @property
    def tiles(self) -> IntExpr:
        return ceil_divide(self.count, self.tile)

    def start_of(self, tile: IntExpr) -> IntExpr:
        """First row of a tile: tiles share all rows evenly."""
        return tile * self.count // self.tiles if not self.tiles.is_static or self.tiles.value else ZERO

    def tile_sizes(self) -> list[int]:
        if not self.count.is_static:
            return list(range(1, self.tile + 1))
        rows, tiles = self.count.value, max(1, self.tiles.value)
        return sorted({max(1, rows // tiles), max(1, -(-rows // tiles))})

    def decode(self, row: IntExpr, suffix: str) -> list[p.Statement]:
        """The rows' axes from a flat row number, as `<axis><suffix>`."""
        statements: list[p.Statement] = []
        rest = row
        for axis in reversed(self.axes):
            value = rest if axis is self.axes[0] else rest % axis.extent
            statements.append(p.SetInt(axis.name + suffix, value))
            rest = rest // axis.extent
        return statements

    def at(self, expr: IntExpr, row: int | None) -> IntExpr:
        """At one row of a tile, or at the current row of the block (None)."""
        if row is not None and len(self.axes) == 1:
            # one pointer for all rows, which constants tell apart
            at = {self.axes[0].name: IntExpr.of("start") + row}
            return expr.substitute(dict.fromkeys(self.dropped, ZERO) | at)
        suffix = "" if row is None else f"_{row}"
        names = {a.name: IntExpr.of(a.name + suffix) for a in self.axes}
        return expr.substitute(dict.fromkeys(self.dropped, ZERO) | names)

    def condition_at(self, condition: Condition, row: int) -> Condition:
        low, index, high = (self.at(part, row) for part in condition)
        return low, index, high


def rows_of(nest: Nest, plan: TilePlan) -> Rows:
    axes = _merged(nest, plan)
    kept = {a.name for a in axes}
    dropped = tuple(a.name for a in plan.product.rows if a.name not in kept)
    return Rows(axes, dropped, plan.product.row_count, plan.schedule.row_tile)


def _merged(nest: Nest, plan: TilePlan) -> tuple[Axis, ...]:
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
    if any_mentions(conditions, outer) or any_mentions(conditions, inner):
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
    if plan.product.streamed.zero is not None:
        pending.append(plan.product.streamed.zero)
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
