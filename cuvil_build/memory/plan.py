"""The whole memory plan of a graph: in which order its items run, what shares memory, and where it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cuvil_build.memory.arena import aligned_bytes, plan_arena
from cuvil_build.memory.blocks import MemoryPlan
from cuvil_build.memory.bound import lower_bound
from cuvil_build.memory.launches import group_launches
from cuvil_build.memory.liveness import Storage, assign_storage
from cuvil_build.memory.order import Orders, find_orders, reordered
from cuvil_build.memory.sizes import size_points
from cuvil_build.ops.lowered_graph import LoweredGraph

_TRIES = 2
"""Sizes at which an order is looked for."""


@dataclass(frozen=True, slots=True)
class GraphPlan:
    graph: LoweredGraph
    """As it runs: reordered, with its launches."""
    orders: Orders
    storage: Storage
    memory: MemoryPlan
    points: Sequence[Mapping[str, int]]
    """Sizes that the plan was made for, the reference sizes first."""
    source_bound: int
    """The lower bound of the order in the model, at the reference sizes."""


def plan_graph(graph: LoweredGraph) -> GraphPlan:
    """`graph` as it was lowered."""
    points = size_points(graph.dims)
    source = _Order.of(graph, {}, points)
    best = source
    tried: list[Orders] = [{}]
    for point in points[:_TRIES]:
        orders = find_orders(graph, point)
        if orders not in tried:
            tried.append(orders)
            found = _Order.of(graph, orders, points)
            if found.is_no_worse(source) and found.beside(source) < best.beside(source):
                best = found
    memory = plan_arena(best.storage.blocks, points[0], points[1:])
    return GraphPlan(best.graph, best.orders, best.storage, memory, points, source.bounds[0])


def arrange(graph: LoweredGraph, orders: Orders) -> LoweredGraph:
    """A lowered graph as it runs: its items in these orders, what may run at once in one launch."""
    return group_launches(reordered(graph, orders))


@dataclass(frozen=True, slots=True)
class _Order:
    graph: LoweredGraph
    orders: Orders
    storage: Storage
    bounds: tuple[int, ...] = field(default=())
    """At each point."""

    @staticmethod
    def of(graph: LoweredGraph, orders: Orders, points: Sequence[Mapping[str, int]]) -> _Order:
        arranged = arrange(graph, orders)
        storage = assign_storage(arranged)
        movable = [b for b in storage.blocks if b.nbytes.terms]
        bounds = tuple(lower_bound(movable, aligned_bytes(movable, point)) for point in points)
        return _Order(arranged, orders, storage, bounds)

    def is_no_worse(self, other: _Order) -> bool:
        """At the reference sizes; in between, a hundredth more is nothing."""
        pairs = zip(self.bounds, other.bounds)
        return self.bounds[0] <= other.bounds[0] and all(own <= most + most // 100 for own, most in pairs)

    def beside(self, other: _Order) -> float:
        """How large it is compared with another one, over all points."""
        return sum(own / max(1, theirs) for own, theirs in zip(self.bounds, other.bounds))
