"""Finds a product whose result only a depthwise window reads: what a sliding group is made of.

The window needs exactly the channel that it computes, and of that channel a few rows around each of its own.
So a block of channels can be taken through both, a few rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum
from cuvil_build.kernel.expr import Apply, Buffer, Const, Expr, Load, Within
from cuvil_build.kernel.nest import Nest, Stage, loads


@dataclass(frozen=True, slots=True)
class Slide:
    """Taps along one spatial dim: output `o` reads `stride * o + dilation * tap - pad`."""

    axis: str
    """The window's own, over its output."""
    extent: IntExpr
    """Of the output."""
    source: IntExpr
    """Extent of what it reads."""
    stride: int
    reach: int
    """From the first element of a window to behind its last."""
    pad: int
    """Before the first element."""

    @property
    def pad_after(self) -> IntExpr:
        """Elements behind the last one that some output reads."""
        return maximum(0, (self.extent - 1) * self.stride + self.reach - self.pad - self.source)


@dataclass(frozen=True, slots=True)
class Pair:
    producer: Nest
    window: Nest
    between: Buffer
    batch: tuple[str, str] | None
    """What both nests call the axis of the batch; None: there is one image."""
    channel: tuple[str, str]
    channels: int
    row: str
    """The producer's axis."""
    rows: Slide
    column: str | None
    columns: Slide | None
    """None: a window over one dim."""
    weights: Load
    """The producer's constant."""


def find_pair(producer: Nest, window: Nest) -> Pair | None:
    """The pair that two nests are; None where they are none. That nothing else reads what lies between them
    is not looked at."""
    written = _plain_result(producer)
    if written is None or not _is_sum(window):
        return None
    between, index = written
    if len(producer.stages[0].axes) > 1:
        return None  # with taps of its own, its rows would be gathered again for each block of channels
    tap = _the_load(window, between)
    store = window.stages[1]
    own = _plain_axes(store.index, window)
    if tap is None or own is None or len(index) != len(own) or len(index) not in (3, 4):
        return None
    channels = _channel(producer, window, tap, index[1], own[1])
    if channels is None or tap.index[0] != store.index[0] or (index[0] is None) != (own[0] is None):
        return None
    slides = [_slide(window, tap, d, own[d], between.shape[d]) for d in range(2, len(index))]
    rows, columns = slides[0], slides[1] if len(slides) > 1 else None
    if rows is None or index[2] is None or (len(slides) > 1 and (columns is None or index[3] is None)):
        return None
    if not _is_padded(window, tap, [s for s in slides if s is not None]):
        return None
    weights = _weights(producer, str(index[1]))
    if weights is None:
        return None
    batch = None if index[0] is None else (index[0], str(own[0]))
    channel = str(index[1]), str(own[1])
    column = index[3] if len(index) > 3 else None
    return Pair(producer, window, between, batch, channel, channels, index[2], rows, column, columns, weights)


def _is_sum(nest: Nest) -> bool:
    if len(nest.stages) != 2 or nest.sequential:
        return False
    total, store = nest.stages
    value = total.value
    product = isinstance(value, Apply) and value.function == "mul" and value.dtype.is_float
    plain = total.kind == "sum" and not total.target.shape and total.target.role == "temp"
    return product and plain and store.kind == "store" and not store.axes and store.target.role != "temp"


def _plain_axes(index: tuple[IntExpr, ...], nest: Nest) -> tuple[str | None, ...] | None:
    """The axis that each dim is; None for one that stays at zero. All axes once."""
    names = {a.name for a in nest.axes}
    found = tuple(None if i == ZERO else str(i) for i in index)
    used = [n for n in found if n is not None]
    return found if sorted(used) == sorted(names) else None


def _plain_result(nest: Nest) -> tuple[Buffer, tuple[str | None, ...]] | None:
    if not _is_sum(nest):
        return None
    store = nest.stages[1]
    axes = _plain_axes(store.index, nest)
    extents = {a.name: a.extent for a in nest.axes}
    if axes is None or store.target.dtype != nest.stages[0].target.dtype:
        return None
    whole = all(
        d == (ONE if a is None else extents[a]) for a, d in zip(axes, store.target.shape, strict=True)
    )
    return (store.target, axes) if whole else None


def _the_load(window: Nest, between: Buffer) -> Load | None:
    """Where the window reads what the producer wrote, if it does so in one place of its sum."""
    total, store = window.stages
    found = [load for load in loads(total.value) if load.buffer.name == between.name]
    if len(found) != 1 or any(load.buffer.name == between.name for load in loads(store.value)):
        return None
    (load,) = found
    plain = load.buffer == between and all(isinstance(i, IntExpr) for i in load.index)
    return load if plain and load in _factors(total) else None


def _factors(stage: Stage) -> tuple[Expr, ...]:
    """Of the sum, without the conditions around them."""
    assert isinstance(stage.value, Apply)
    return tuple(f.value if isinstance(f, Within) else f for f in stage.value.args)


def _channel(producer: Nest, window: Nest, tap: Load, made: str | None, own: str | None) -> int | None:
    """How many channels, where the window reads the one that it computes."""
    if made is None or own is None or tap.index[1] != IntExpr.of(own):
        return None
    extents = [a.extent for nest, n in ((producer, made), (window, own)) for a in nest.axes if a.name == n]
    same = len(extents) == 2 and extents[0] == extents[1] and extents[0].is_static
    return extents[0].value if same else None


def _slide(window: Nest, tap: Load, dim: int, own: str | None, source: IntExpr) -> Slide | None:
    at = tap.index[dim]
    total = window.stages[0]
    if own is None or not isinstance(at, IntExpr):
        return None
    stride, rest = at.split(own)
    if stride is None or not stride.is_static or stride.value < 1:
        return None
    reach = 1
    for axis in total.axes:
        step, rest = rest.split(axis.name)
        if step is None or not step.is_static or step.value < 0 or not axis.extent.is_static:
            return None
        reach += step.value * (axis.extent.value - 1)
    if not rest.is_static or rest.value > 0 or reach < stride.value:
        return None
    extent = next(a.extent for a in window.axes if a.name == own)
    return Slide(own, extent, source, stride.value, reach, -rest.value)


def _is_padded(window: Nest, tap: Load, slides: list[Slide]) -> bool:
    """Whether what lies outside reads as zero, and nothing else is conditional."""
    sum_ = window.stages[0].value
    assert isinstance(sum_, Apply)
    allowed = {(ZERO, tap.index[2 + n], slide.source) for n, slide in enumerate(slides)}
    for factor in sum_.args:
        if not isinstance(factor, Within):
            continue
        zero = isinstance(factor.otherwise, Const) and factor.otherwise.value == 0
        if factor.value != tap or not zero or not set(factor.conditions) <= allowed:
            return False
    return True


def _weights(producer: Nest, channel: str) -> Load | None:
    """The one constant factor that has the channel as a dim of its own; the other has no part in it."""
    factors = _factors(producer.stages[0])
    found = [f for f in factors if isinstance(f, Load) and f.buffer.constant and _mentions(f, channel)]
    if len(found) != 1 or any(_mentions(f, channel) for f in factors if f is not found[0]):
        return None
    everywhere = [load for s in producer.stages for load in loads(s.value)]
    if sum(load.buffer.name == found[0].buffer.name for load in everywhere) > 1:
        return None
    dims = [i for i in found[0].index if isinstance(i, IntExpr) and channel in i.symbols()]
    return found[0] if dims == [IntExpr.of(channel)] else None


def _mentions(expr: Expr, axis: str) -> bool:
    if isinstance(expr, Within) and any(axis in i.symbols() for c in expr.conditions for i in c):
        return True
    return any(not isinstance(i, IntExpr) or axis in i.symbols() for load in loads(expr) for i in load.index)
