"""Finds a two-dimensional linear transform in a nest: the first and the last step of a convolution by tiles.

    y[..., row, column] = epilogue of the sum over i, j of L[row % p, i] * R[column % q, j] * x[..., i, j]

`L` and `R` are numbers that the nest's expressions have. Tiles of p x q results share the operand's elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cuvil_build.cuir.int_expr import ONE, ZERO, Call, IntExpr, ceil_divide
from cuvil_build.kernel.expr import Apply, Const, Expr, IndexValue, Load, Within
from cuvil_build.kernel.nest import Axis, Nest, loads, parts
from cuvil_build.kernel.winograd_find import offset_of
from cuvil_build.kernel.winograd_linear import Row

Condition = tuple[IntExpr, IntExpr, IntExpr]
_LARGEST = 8
"""Results and operands of a line."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two dims of a tile."""

    axis: Axis
    tile: Axis
    """Its tiles; what the axis is divided into."""
    tap: str
    matrix: tuple[Row, ...]
    """[result][operand]."""
    conditions: tuple[Condition, ...]
    """Of the operands, over the outer axes, `tile` and `tap`."""

    @property
    def results(self) -> int:
        return len(self.matrix)

    @property
    def operands(self) -> int:
        return len(self.matrix[0])

    @property
    def is_whole(self) -> bool:
        """Whether every tile has all its results."""
        extent = self.axis.extent
        return extent.is_static and extent.value % self.results == 0

    def at(self, result: int) -> IntExpr:
        """The axis at a result of a tile."""
        return IntExpr.of(self.tile.name) * self.results + result


@dataclass(frozen=True, slots=True)
class Transform:
    nest: Nest
    rows: Side
    columns: Side
    source: Load
    offset: IntExpr
    """Of an operand's element, over the outer axes, the tiles and the taps."""
    vector: Axis
    """Contiguous in the operand and in the result."""

    def tile_axes(self) -> tuple[Axis, ...]:
        """What is looped over, outermost first, but for the vector axis."""
        sides = {s.axis.name: s.tile for s in (self.rows, self.columns)}
        axes = (sides.get(a.name, a) for a in self.nest.axes if a.name != self.vector.name)
        return tuple(a for a in axes if a.extent != ONE)

    def fixed(self) -> dict[str, IntExpr]:
        """Axes with one step: they are at its start."""
        axes = (*self.nest.axes, self.rows.tile, self.columns.tile)
        return {a.name: ZERO for a in axes if a.extent == ONE and a.name != self.vector.name}


def find_transform(nest: Nest) -> Transform | None:
    if nest.anchor != "map" or nest.sequential or len(nest.stages) != 2:
        return None
    total, store = nest.stages
    if total.kind != "sum" or total.target.shape or len(total.axes) != 2:
        return None
    if store.kind != "store" or store.axes:
        return None
    if any(isinstance(p, (Within, IndexValue)) for p in parts(store.value)):
        return None
    product = total.value
    if not isinstance(product, Apply) or product.function != "mul" or not product.dtype.is_float:
        return None
    numbers, source = product.args
    if not isinstance(numbers, Apply) or numbers.function != "mul":
        return None
    conditions = source.conditions if isinstance(source, Within) else ()
    source = source.value if isinstance(source, Within) else source
    if not isinstance(source, Load) or not all(isinstance(i, IntExpr) for i in source.index):
        return None
    taken = {a.name for a in nest.axes}
    sides = [
        _side(nest, expr, tap, conditions, f"{_fresh(taken)}{n}")
        for n, (expr, tap) in enumerate(zip(numbers.args, total.axes))
    ]
    if any(side is None for side in sides):
        return None
    rows, columns = (side for side in sides if side is not None)
    if len(rows.conditions) + len(columns.conditions) != len(conditions):
        return None
    offset = _shared_offset(offset_of(source), rows, columns)
    vector = _vector(nest, source, rows, columns)
    if offset is None or vector is None:
        return None
    return Transform(nest, rows, columns, source, offset, vector)


def _fresh(taken: set[str]) -> str:
    prefix = "tile"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    return prefix


def _side(nest: Nest, expr: Expr, tap: Axis, conditions: Sequence[Condition], tile: str) -> Side | None:
    names = {s for p in parts(expr) if isinstance(p, IndexValue) for s in p.index.symbols()}
    outer = [a for a in nest.axes if a.name in names]
    if any(isinstance(p, Load) for p in parts(expr)) or len(outer) != 1:
        return None
    if names != {outer[0].name, tap.name} or not tap.extent.is_static or tap.extent.value > _LARGEST:
        return None
    axis = outer[0]
    period = _period(expr, axis)
    if period is None or period > _LARGEST:
        return None
    rows = [
        [_number(expr, {axis.name: r, tap.name: i}) for i in range(tap.extent.value)] for r in range(period)
    ]
    if any(value is None for row in rows for value in row):
        return None
    matrix = tuple(tuple(value for value in row if value is not None) for row in rows)
    tiles = Axis(tile, ceil_divide(axis.extent, period))
    own = tuple(c for c in conditions if any(tap.name in e.symbols() for e in c))
    return Side(axis, tiles, tap.name, matrix, own)


def _period(expr: Expr, axis: Axis) -> int | None:
    """After how many steps of the axis the numbers are the same again."""
    indices = [p.index for p in parts(expr) if isinstance(p, IndexValue)]
    found = {
        atom.args[1].value
        for index in indices
        for atom in index.atoms()
        if isinstance(atom, Call) and axis.name in atom.args[0].symbols()
        if atom.function == "mod" and atom.args[0] == IntExpr.of(axis.name) and atom.args[1].is_static
    }
    bare = [i for i in indices if i.coefficient(axis.name) not in (None, ZERO)]
    if not found and axis.extent.is_static:
        return axis.extent.value
    return found.pop() if len(found) == 1 and not bare else None


def _number(expr: Expr, values: Mapping[str, int]) -> Fraction | None:
    if isinstance(expr, Const):
        return Fraction(expr.value)
    if isinstance(expr, IndexValue):
        return Fraction(expr.index.evaluate(values))
    if not isinstance(expr, Apply) or expr.function not in ("select", "eq"):
        return None
    args = [_number(a, values) for a in expr.args]
    if any(a is None for a in args):
        return None
    if expr.function == "eq":
        return Fraction(int(args[0] == args[1]))
    return args[1] if args[0] else args[2]


def _shared_offset(offset: IntExpr, rows: Side, columns: Side) -> IntExpr | None:
    """The same for all results of a tile, and affine in the taps."""
    found = {
        offset.substitute({rows.axis.name: rows.at(r), columns.axis.name: columns.at(c)})
        for r in range(rows.results)
        for c in range(columns.results)
    }
    if len(found) > 1:
        return None
    (one,) = found
    steps = [one.coefficient(side.tap) for side in (rows, columns)]
    return None if any(s is None or s.symbols() & {rows.tap, columns.tap} for s in steps) else one


def _vector(nest: Nest, source: Load, rows: Side, columns: Side) -> Axis | None:
    store = nest.stages[1]
    target = offset_of(Load(store.target, store.index))
    bound = {s for side in (rows, columns) for c in side.conditions for e in c for s in e.symbols()}
    for axis in nest.axes:
        offsets = [offset_of(source), target]
        plain = all(o.coefficient(axis.name) == ONE for o in offsets)
        if plain and axis.name not in bound and axis.name not in (rows.axis.name, columns.axis.name):
            others = [load for load in loads(store.value) if load.buffer.role != "temp"]
            integer = all(isinstance(i, IntExpr) for load in others for i in load.index)
            if integer and all(offset_of(load).coefficient(axis.name) is not None for load in others):
                return axis
    return None
