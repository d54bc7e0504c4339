"""Runs a lowered graph on numpy arrays, item by item: what the module does, without a compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import CuvilError
from cuvil_build.kernel.interpret import interpret
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    DefineItem,
    GraphGuard,
    Item,
    LaunchItem,
    LoopItem,
    LoweredGraph,
    MeasureItem,
    RegionItem,
)

from .harness import poisoned


class GuardFailed(CuvilError):
    """A guard, or a limit of a measured symbol, that the numbers of this run do not meet."""


@dataclass
class GraphRun:
    graph: LoweredGraph
    sizes: dict[str, int]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def number(self, expr: IntExpr) -> int:
        return expr.evaluate(self.sizes)

    def value(self, name: str) -> np.ndarray:
        value = self.graph.values[name]
        found = self.arrays[name] if value.constant is None else value.constant
        shape = tuple(self.number(d) for d in value.shape)
        assert found.shape == shape, f"'{name}' is {found.shape}, its shape says {shape}"
        return found

    def body(self, body: Body) -> list[np.ndarray]:
        for whole in _shared(body):
            self.arrays.pop(whole, None)  # of the iteration before: what nobody writes again stays poisoned
        for item in body.items:
            self.guards(item.guards)
            self.item(item)
        return [self.value(name) for name in body.outputs]

    def guards(self, guards: tuple[GraphGuard, ...]) -> None:
        for guard in guards:
            left, right = self.number(guard.left), self.number(guard.right)
            holds = {"==": left == right, "!=": left != right, "<=": left <= right}[guard.relation]
            if not holds:
                raise GuardFailed(f"{guard.message}: {left} {guard.relation} {right}")

    def item(self, item: Item) -> None:
        if isinstance(item, RegionItem):
            self.region(item)
        elif isinstance(item, LaunchItem):
            self.launch(item)
        elif isinstance(item, AliasItem):
            shape = tuple(self.number(d) for d in self.graph.values[item.result].shape)
            self.arrays[item.result] = self.value(item.source).reshape(shape)
        elif isinstance(item, BranchItem):
            self.branch(item)
        elif isinstance(item, MeasureItem):
            self.measure(item)
        elif isinstance(item, DefineItem):
            for symbol, value in item.values:
                self.sizes[symbol] = self.number(value)
        elif isinstance(item, LoopItem):
            self.loop(item)

    def region(self, item: RegionItem) -> None:
        region = item.region
        memory = {b.name: poisoned(b, self.sizes) for b in (*region.inner, *region.outputs)}
        shared = {part.whole for part in item.writes} & self.arrays.keys()
        memory |= {b.name: self.arrays[v] for b, v in zip(region.outputs, item.results) if v in shared}
        extra = region.inputs[len(item.operands) :]
        memory |= {b.name: self.value(v) for b, v in zip(region.inputs, item.operands)}
        memory |= {b.name: a for b, a in zip(extra, region.tables, strict=True)}
        for nest in region.nests:
            interpret(nest, memory, self.sizes)
        self.arrays |= {v: memory[b.name] for b, v in zip(region.outputs, item.results, strict=True)}

    def launch(self, item: LaunchItem) -> None:
        """In the order that most mistakes would not survive: nothing of it may matter."""
        for region in reversed(item.items):
            self.region(region)

    def branch(self, item: BranchItem) -> None:
        taken = bool(self.value(item.condition).reshape(()))
        results = self.body(item.then_body if taken else item.else_body)
        for symbol, then_value, else_value in item.locals:
            self.sizes[symbol] = self.number(then_value if taken else else_value)
        self.arrays |= dict(zip(item.results, results, strict=True))

    def measure(self, item: MeasureItem) -> None:
        flat = self.value(item.source).reshape(-1)
        for dim in item.symbols:
            number = int(flat[dim.element])
            high = None if dim.high is None else self.number(dim.high)
            if number < dim.low or (high is not None and number > high):
                raise GuardFailed(f"{dim.message} is {number}, allowed {dim.low}..{high}")
            self.sizes[dim.symbol] = number

    def loop(self, item: LoopItem) -> None:
        states = [self.value(s.initial) for s in item.states]
        self.sizes |= {d.symbol: self.number(d.initial) for d in item.dims}
        trips = None if item.trips is None else self.number(item.trips)
        goes_on = not item.condition or bool(self.value(item.condition).reshape(()))
        scanned: list[list[np.ndarray]] = [[] for _ in item.scanned]
        count = 0
        while goes_on and (trips is None or count < trips):
            self.sizes[item.iteration] = count
            self.arrays |= {s.formal: np.copy(a) for s, a in zip(item.states, states)}
            found = self.body(item.body)
            goes_on = bool(found[0].reshape(()))
            states = found[1 : 1 + len(states)]
            for rows, element in zip(scanned, found[1 + len(states) :], strict=True):
                rows.append(np.copy(element))
            self.sizes |= {d.symbol: n for d, n in [(d, self.number(d.next)) for d in item.dims]}
            count += 1
        self.sizes[item.count] = count
        for state, array in zip(item.states, states):
            self.arrays[state.result] = np.copy(array)
        for name, rows in zip(item.scanned, scanned):
            value = self.graph.values[name]
            shape = tuple(self.number(d) for d in value.shape)
            self.arrays[name] = np.array(rows, value.dtype.numpy).reshape(shape)


def _shared(body: Body) -> list[str]:
    """Values that several regions of a body write."""
    items = [i for item in body.items for i in (item.items if isinstance(item, LaunchItem) else (item,))]
    return [part.whole for item in items if isinstance(item, RegionItem) for part in item.writes]


def run_graph(graph: LoweredGraph, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs; raises GuardFailed where the module would refuse the inputs."""
    sizes = {d.name: feeds[d.source[0]].shape[d.source[1]] for d in graph.dims.values()}
    run = GraphRun(graph, sizes, dict(feeds))
    return run.body(graph.body)
