"""A whole graph after lowering: a sequence of regions, aliases and branches over named values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Union

import numpy as np

from cuvil_build.cuir.dims import FreeDim
from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import IntExpr, maximum, product
from cuvil_build.kernel.lowered import LoweredRegion


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
        return product(self.shape) * self.dtype.nbytes

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
class RegionItem:
    """Run one region."""

    name: str
    region: LoweredRegion
    operands: tuple[str, ...]
    """Values bound to `region.inputs`, in order."""
    results: tuple[str, ...]
    nodes: tuple[str, ...]
    guards: tuple[GraphGuard, ...] = ()


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


Item = Union[RegionItem, AliasItem, GuardItem, BranchItem]


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    values: Mapping[str, GraphValue]
    inputs: tuple[str, ...]
    body: Body
    """Its outputs are the graph's."""
    dims: Mapping[str, FreeDim]

    def reference_sizes(self) -> dict[str, int]:
        """The size of each free dim that memory is planned for: its largest, or a typical one."""
        return {d.name: _reference_size(d) for d in self.dims.values()}

    def branches(self) -> Iterator[BranchItem]:
        """Every branch, outer ones first."""
        yield from _branches(self.body)

    def size_limit(self, expr: IntExpr) -> IntExpr:
        """The expression with dims that branches decide replaced by the larger of their values."""
        limits: dict[str, IntExpr] = {}
        for branch in reversed(list(self.branches())):
            for symbol, then_value, else_value in branch.locals:
                limits[symbol] = maximum(then_value.substitute(limits), else_value.substitute(limits))
        return expr.substitute(limits)


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
