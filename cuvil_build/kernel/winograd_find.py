"""Finds convolutions that Winograd's algorithm can compute: 3x3, not dilated, float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cuvil_build.cuir.dtypes import FLOAT32
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum, minimum
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Within
from cuvil_build.kernel.nest import Axis, Nest, Stage, loads, parts
from cuvil_build.kernel.winograd_maps import TAPS, TILES

Range = tuple[IntExpr, IntExpr]
_Condition = tuple[IntExpr, IntExpr, IntExpr]


@dataclass(frozen=True, slots=True)
class Line:
    """One spatial dim."""

    axis: Axis
    """Of the result."""
    tap: str
    stride: int
    valid: Range
    """Where `stride * axis + tap` reads the operand; elsewhere it reads zero."""


@dataclass(frozen=True, slots=True)
class Convolution:
    nest: Nest
    source: Load
    """Over the nest's axes, the lines' taps and `channel`."""
    weights: Buffer
    """[result channel][operand channel][tap][tap]."""
    batch: tuple[Axis, ...]
    result_channel: Axis
    channel: Axis
    rows: Line
    columns: Line

    @property
    def stride(self) -> int:
        return self.rows.stride

    @property
    def store(self) -> Stage:
        return self.nest.stages[1]


def find_convolution(nest: Nest) -> Convolution | None:
    if nest.anchor != "window" or nest.sequential or len(nest.stages) != 2:
        return None
    total, store = nest.stages
    if total.kind != "sum" or total.target.shape or store.kind != "store" or store.axes:
        return None
    value = total.value
    if not isinstance(value, Apply) or value.function != "mul" or value.dtype != FLOAT32:
        return None
    if store.target.dtype != FLOAT32 or not _is_plain(store, nest.axes):
        return None
    pairs = (value.args, value.args[::-1])
    return next((c for s, w in pairs if (c := _convolution(nest, total, s, w)) is not None), None)


def _convolution(nest: Nest, total: Stage, source: Expr, weights: Expr) -> Convolution | None:
    filters = _filters(nest, total, weights)
    if filters is None:
        return None
    buffer, out, channel, *taps = filters
    conditions = source.conditions if isinstance(source, Within) else ()
    if isinstance(source, Within):
        if not isinstance(source.otherwise, Const) or source.otherwise.value != 0:
            return None
        source = source.value
    if not isinstance(source, Load) or source.dtype != FLOAT32 or source.buffer.role == "temp":
        return None
    index = [i for i in source.index if isinstance(i, IntExpr)]
    if len(index) < len(source.index) or any(out.name in i.symbols() for i in index):
        return None
    channels = [i for i in index if channel.name in i.symbols()]
    if len(channels) != 1 or not _moves_by(channels[0], channel.name, total.axes, nest.axes):
        return None
    lines = [_line(nest, tap, index, conditions) for tap in taps]
    if any(line is None for line in lines):
        return None
    rows, columns = (line for line in lines if line is not None)
    known = {rows.axis.name, columns.axis.name}
    if (
        rows.stride != columns.stride
        or len(known) < 2
        or _count(conditions, rows) + _count(conditions, columns) < len(conditions)
    ):
        return None
    if not _is_contiguous(source, channel.name) or not _is_contiguous_store(nest.stages[1], out.name):
        return None
    batch = tuple(a for a in nest.axes if a.name not in known | {out.name})
    if any(not i.coefficient(a.name) for i in index for a in batch if a.name in i.symbols()):
        return None
    return Convolution(nest, source, buffer, batch, out, channel, rows, columns)


def _filters(nest: Nest, total: Stage, expr: Expr) -> tuple[Buffer, Axis, Axis, Axis, Axis] | None:
    """The constant weights, and the axes that run over their dims."""
    if isinstance(expr, Cast) and expr.dtype == FLOAT32:
        expr = expr.value
    if not isinstance(expr, Load) or not expr.buffer.constant or len(expr.index) != 4:
        return None
    if not expr.dtype.is_float or expr.dtype.is_packed or not all(d.is_static for d in expr.buffer.shape):
        return None
    axes = {IntExpr.of(a.name): a for a in (*nest.axes, *total.axes)}
    found = [axes.get(i) for i in expr.index if isinstance(i, IntExpr)]
    if len(found) != 4 or any(a is None for a in found):
        return None
    out, *inner = (a for a in found if a is not None)
    if [a.extent for a in (out, *inner)] != list(expr.buffer.shape) or out not in nest.axes:
        return None
    if sorted(a.name for a in inner) != sorted(a.name for a in total.axes):
        return None
    if any(a.extent != IntExpr.of(TAPS) for a in inner[1:]):
        return None
    return expr.buffer, out, inner[0], inner[1], inner[2]


def _line(nest: Nest, tap: Axis, index: list[IntExpr], conditions: tuple[_Condition, ...]) -> Line | None:
    """The dim of the operand that a tap moves along."""
    entries = [i for i in index if tap.name in i.symbols()]
    if len(entries) != 1 or entries[0].coefficient(tap.name) != ONE:
        return None
    moving = [a for a in nest.axes if a.name in entries[0].symbols()]
    factor = entries[0].coefficient(moving[0].name) if len(moving) == 1 else None
    if factor is None or factor not in [IntExpr.of(stride) for stride in TILES]:
        return None
    axis, stride = moving[0], factor.value
    if sum(axis.name in i.symbols() for i in index) != 1:
        return None
    place = IntExpr.of(axis.name) * stride + IntExpr.of(tap.name)
    # no output may see what lies past its own last tap: there may be anything
    low, high = ZERO, (axis.extent - 1) * stride + TAPS
    for before, at, after in conditions:
        if tap.name not in at.symbols():
            continue
        shift = at - place
        names = shift.symbols() | before.symbols() | after.symbols()
        if names & {a.name for s in nest.stages for a in (*nest.axes, *s.axes)}:
            return None
        low, high = maximum(low, before - shift), minimum(high, after - shift)
    return Line(axis, tap.name, stride, (low, high))


def _count(conditions: tuple[_Condition, ...], line: Line) -> int:
    return sum(line.tap in at.symbols() for _, at, _ in conditions)


def _moves_by(entry: IntExpr, name: str, inner: tuple[Axis, ...], outer: tuple[Axis, ...]) -> bool:
    """Whether an index is the axis, and nothing else that moves."""
    rest = entry - IntExpr.of(name)
    return not rest.symbols() & {a.name for a in (*inner, *outer)}


def _is_contiguous(load: Load, name: str) -> bool:
    return offset_of(load).coefficient(name) == ONE


def _is_contiguous_store(stage: Stage, name: str) -> bool:
    return offset_of(Load(stage.target, stage.index)).coefficient(name) == ONE


def offset_of(load: Load) -> IntExpr:
    """In elements, where all of the index are integers."""
    pairs = zip(load.index, load.buffer.strides(), strict=True)
    return sum((i * s for i, s in pairs if isinstance(i, IntExpr)), ZERO)


def _is_plain(store: Stage, axes: tuple[Axis, ...]) -> bool:
    """Whether the value can be computed for any point of a tile: no conditions, affine addresses."""
    if any(isinstance(part, (Within, IndexValue)) for part in parts(store.value)):
        return False
    found = [Load(store.target, store.index), *loads(store.value)]
    return all(load.buffer.role == "temp" or _is_affine(load, axes) for load in found)


def _is_affine(load: Load, axes: tuple[Axis, ...]) -> bool:
    if not all(isinstance(i, IntExpr) for i in load.index):
        return False
    names = {a.name for a in axes}
    factors = [offset_of(load).coefficient(a.name) for a in axes]
    return all(f is not None and not f.symbols() & names for f in factors)


def names_of(nest: Nest) -> frozenset[str]:
    """Every symbol that a nest mentions."""
    return frozenset(s for expr in _integers(nest) for s in expr.symbols()) | {
        a.name for a in (*nest.axes, *(b for s in nest.stages for b in s.axes))
    }


def _integers(nest: Nest) -> Iterator[IntExpr]:
    for stage in nest.stages:
        yield from (a.extent for a in (*nest.axes, *stage.axes))
        yield from (*stage.index, *stage.target.shape)
        for load in loads(stage.value):
            yield from load.buffer.shape
            yield from (i for i in load.index if isinstance(i, IntExpr))
        for part in parts(stage.value):
            if isinstance(part, Within):
                yield from (i for condition in part.conditions for i in condition)
