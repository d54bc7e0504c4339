"""A whole graph after lowering: a sequence of regions, aliases and branches over named values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Union

import numpy as np

from cuvil_build.cuir.dims import FreeDim
from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.cuir.limits import Limits, limits_of
from cuvil_build.kernel.lowered import LoweredRegion

MAX_JOINED = 16
"""Regions of one launch: a thread looks for its part among all of them."""
LARGEST_LIMIT = 1 << 30
"""Bytes or elements; what may be larger and what data decides takes as much as a run needs."""


@dataclass(frozen=True, slots=True)
class GraphValue:
    """One tensor of the graph, subgraphs included; names are unique in the whole model."""

    name: str
    dtype: DType
    shape: tuple[IntExpr, ...]
    order: tuple[int, ...]
    """Physical order of the dims, as `kernel.expr.Buffer.order`."""
    constant: np.ndarray | None = None
    digest: str = ""
    """SHA-256 of a constant's raw bytes, where the graph knows it."""

    @property
    def nbytes(self) -> IntExpr:
        return self.dtype.bytes_of(product(self.shape))

    @property
    def is_row_major(self) -> bool:
        """Whether memory is row-major, dims of size 1 left aside."""
        wide = [d for d in self.order if self.shape[d] != IntExpr.of(1)]
        return wide == sorted(wide)


@dataclass(frozen=True, slots=True)
class GraphGuard:
    left: IntExpr
    relation: str
    """`==`, `!=` or `<=`."""
    right: IntExpr
    message: str


@dataclass(frozen=True, slots=True)
class Part:
    """A value of the model that has no memory of its own: a block of another value."""

    value: str
    whole: str
    start: tuple[IntExpr, ...]
    """Index of its first element in the whole."""
    shape: tuple[IntExpr, ...]


@dataclass(frozen=True, slots=True)
class RegionItem:
    """Run one region."""

    name: str
    region: LoweredRegion
    operands: tuple[str, ...]
    """Values bound to `region.inputs`, in order."""
    results: tuple[str, ...]
    """Several regions may write one value, each its own part; its life begins with the first."""
    nodes: tuple[str, ...]
    guards: tuple[GraphGuard, ...] = ()
    reads: tuple[Part, ...] = ()
    """What it reads of operands that hold other values too."""
    writes: tuple[Part, ...] = ()
    """Of each result that it does not write wholly: the parts that it does write."""


@dataclass(frozen=True, slots=True)
class AliasItem:
    """The result is the source's bytes under another shape."""

    source: str
    result: str
    guards: tuple[GraphGuard, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardItem:
    """Checks that belong to a node which needs no code."""

    guards: tuple[GraphGuard, ...]


@dataclass(frozen=True, slots=True)
class Body:
    items: tuple[Item, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BranchItem:
    """Run one of two bodies; body output i becomes result i."""

    name: str
    condition: str
    then_body: Body
    else_body: Body
    results: tuple[str, ...]
    locals: tuple[tuple[str, IntExpr, IntExpr], ...] = ()
    """Dims that the branch decides: (symbol, value after then, value after else)."""
    guards: tuple[GraphGuard, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """A symbol that data decides: one element of an integer or bool value, read when the run comes there."""

    symbol: str
    element: int
    """Row-major position in the value."""
    low: int
    high: IntExpr | None
    """Both checked when it is read; `high` is over symbols that are known before this one, or None."""
    message: str
    """For the error: what the number is, in the model's words."""


@dataclass(frozen=True, slots=True)
class MeasureItem:
    """Read numbers from a value that is computed by now."""

    source: str
    symbols: tuple[Measured, ...]
    guards: tuple[GraphGuard, ...] = ()
    """Checked before."""


@dataclass(frozen=True, slots=True)
class DefineItem:
    """Give long expressions a name: from here on each symbol is the number that its expression has."""

    values: tuple[tuple[str, IntExpr], ...]
    guards: tuple[GraphGuard, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopState:
    """A value that goes from one iteration to the next."""

    initial: str
    formal: str
    """What the body reads; another storage than `initial`, which may have other readers."""
    result: str
    """What is left after the last iteration: the same storage and dims as `formal`."""


@dataclass(frozen=True, slots=True)
class LoopDim:
    """A dim of states whose size changes: a symbol with its number before the first iteration, and for the
    next one over the symbols that the body knows at its end."""

    symbol: str
    initial: IntExpr
    next: IntExpr


@dataclass(frozen=True, slots=True)
class LoopItem:
    """Run a body again and again.

    `body.outputs` are the condition for another iteration (a bool scalar), the next value of each state, and
    one element of each scanned result, in this order. All next values are there before any state changes.
    """

    name: str
    trips: IntExpr | None
    """Most iterations; None: no limit."""
    condition: str
    """A bool scalar, read before the first iteration; empty: true."""
    body: Body
    iteration: str
    """Symbol: the number of the iteration, from zero."""
    count: str
    """Symbol: after the loop, how many iterations were run; the first dim of scanned results."""
    states: tuple[LoopState, ...]
    scanned: tuple[str, ...]
    """Results: element i of iteration n becomes result[n], row-major."""
    dims: tuple[LoopDim, ...] = ()
    guards: tuple[GraphGuard, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchItem:
    """Run regions at once, in any order and at the same time: none reads or writes what another one writes,
    but for parts of one value."""

    items: tuple[RegionItem, ...]
    """2 to MAX_JOINED."""

    @property
    def guards(self) -> tuple[GraphGuard, ...]:
        """Checked before any of them runs."""
        return tuple(guard for item in self.items for guard in item.guards)


Item = Union[RegionItem, AliasItem, GuardItem, BranchItem, MeasureItem, DefineItem, LoopItem, LaunchItem]


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    values: Mapping[str, GraphValue]
    inputs: tuple[str, ...]
    body: Body
    """Its outputs are the graph's."""
    dims: Mapping[str, FreeDim]
    limits: Mapping[str, IntExpr | None] = field(default_factory=dict)
    """Of every symbol that the run computes (branches, measured values, loops): the most that it can be,
    over free dims and earlier symbols of this map; None: no limit is known."""
    lows: Mapping[str, IntExpr] = field(default_factory=dict)
    """Of the same symbols: the least that each can be; absent: it may be any negative number."""

    def reference_sizes(self) -> dict[str, int]:
        """The size of each free dim that memory is planned for: its largest, or a typical one."""
        return {d.name: _reference_size(d) for d in self.dims.values()}

    def branches(self) -> Iterator[BranchItem]:
        """Every branch, outer ones first."""
        yield from _branches(self.body)

    def size_limit(self, expr: IntExpr) -> IntExpr | None:
        """The most that a size can be, over free dims alone; None where data decides without a limit that
        memory could be held ready for."""
        if not (expr.symbols() & self.limits.keys()):
            return expr
        known: dict[str, Limits] = {}
        for symbol, limit in self.limits.items():
            most = None if limit is None else limits_of(limit, known)[1]
            known[symbol] = (self.lows.get(symbol), most)
        return useful_limit(limits_of(expr, known)[1])


def useful_limit(limit: IntExpr | None) -> IntExpr | None:
    """None for one that says nothing of what a run needs, such as the range of a dtype."""
    return None if limit is not None and limit.is_static and limit.value > LARGEST_LIMIT else limit


def _reference_size(dim: FreeDim) -> int:
    if dim.spec.maximum is not None:
        return dim.spec.maximum
    return max((*dim.spec.typical, dim.spec.minimum, 1))


def _branches(body: Body) -> Iterator[BranchItem]:
    for item in body.items:
        if isinstance(item, BranchItem):
            yield item
            yield from _branches(item.then_body)
            yield from _branches(item.else_body)
        elif isinstance(item, LoopItem):
            yield from _branches(item.body)
