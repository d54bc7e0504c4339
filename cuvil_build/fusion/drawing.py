"""Where a graph's nodes lie on a page: layers from top to bottom, few crossings, deterministic.

The steps are Sugiyama's: longest-path layers, long edges cut by points of their own, order by the mean of
the neighbours, then places as near to the neighbours as the order allows (pool adjacent violators).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir
from pydantic import BaseModel, ConfigDict, Field

from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.traverse import graphs_within, operands
from cuvil_build.fusion.source_lines import lines_of

WIDTH, HEIGHT = 150, 36
_GAP, _NARROW, _RISE, _MARGIN = 18, 10, 34, 20
_SWEEPS = 8
_MAX_POINTS = 40_000
"""Of long edges: a graph with more is drawn with straight edges."""


class _Drawn(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DrawnNode(_Drawn):
    names: tuple[str, ...] = Field(description="Names of the source model's nodes.")
    op: str
    lines: tuple[str, ...] = Field(default=(), description="Lines of the exported program, outermost first.")
    x: int = Field(description="Of the left edge.")
    y: int


class DrawnEdge(_Drawn):
    points: tuple[tuple[int, int], ...] = Field(
        description="From the first node's foot to the second's head."
    )
    between: tuple[int, int] = Field(description="Numbers of the two nodes.")


class Drawing(_Drawn):
    """A picture in pixels; every node is `node_width` by `node_height`."""

    width: int
    height: int
    node_width: int = WIDTH
    node_height: int = HEIGHT
    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]


def draw(model: ir.Model) -> Drawing:
    """Nodes of the graph and of its subgraphs; weights are left out."""
    nodes = [node for graph in graphs_within(model.graph) for node in graph if node.op_type != "Constant"]
    number = {node: at for at, node in enumerate(nodes)}
    edges: dict[tuple[int, int], None] = {}
    for node in nodes:
        for value in operands(node):
            maker = value.producer()
            if maker is not None and maker in number and maker is not node:
                edges[number[maker], number[node]] = None
    labels = [(tuple(source_nodes(node) or [node.name or ""]), node.op_type) for node in nodes]
    placed = place(labels, sorted(edges))
    lines = [tuple(lines_of(node)) for node in nodes]
    drawn = [old.model_copy(update={"lines": found}) for old, found in zip(placed.nodes, lines)]
    return placed.model_copy(update={"nodes": tuple(drawn)})


def place(labels: Sequence[tuple[tuple[str, ...], str]], edges: Sequence[tuple[int, int]]) -> Drawing:
    """`labels` are names and operator of each node, in an order in which no edge goes back."""
    grid = _Grid.of(len(labels), sorted(edges))
    grid.sort()
    left = grid.places()
    layer_y = [_MARGIN + layer * (HEIGHT + _RISE) for layer in range(len(grid.layers))]
    drawn = tuple(
        DrawnNode(names=names, op=op, x=round(left[at]), y=layer_y[grid.layer[at]])
        for at, (names, op) in enumerate(labels)
    )
    right = max((left[at] + grid.width(at) for at in left), default=0.0)
    paths = tuple(
        DrawnEdge(points=tuple(grid.path(edge, left, layer_y)), between=edge) for edge in sorted(grid.chains)
    )
    return Drawing(
        width=round(right) + _MARGIN,
        height=(layer_y[-1] if layer_y else 0) + HEIGHT + _MARGIN,
        nodes=drawn,
        edges=paths,
    )


@dataclass(slots=True)
class _Grid:
    """Nodes and points of edges by number: first the nodes."""

    count: int
    layer: list[int]
    layers: list[list[int]]
    before: dict[int, list[int]] = field(default_factory=dict)
    after: dict[int, list[int]] = field(default_factory=dict)
    chains: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """Of each edge, the points between its ends."""

    @staticmethod
    def of(count: int, edges: Sequence[tuple[int, int]]) -> _Grid:
        layer = _layers(count, edges)
        grid = _Grid(count, layer, [[] for _ in range(max(layer, default=-1) + 1)])
        for at in range(count):
            grid.layers[layer[at]].append(at)
        points = sum(max(0, layer[b] - layer[a] - 1) for a, b in edges)
        for a, b in edges:
            grid._connect(a, b, bent=points <= _MAX_POINTS)
        return grid

    def _connect(self, a: int, b: int, *, bent: bool) -> None:
        chain: list[int] = []
        for layer in range(self.layer[a] + 1, self.layer[b]) if bent else ():
            chain.append(len(self.layer))
            self.layer.append(layer)
            self.layers[layer].append(chain[-1])
        self.chains[a, b] = chain
        for first, second in zip([a, *chain], [*chain, b]):
            self.after.setdefault(first, []).append(second)
            self.before.setdefault(second, []).append(first)

    def width(self, at: int) -> int:
        return WIDTH if at < self.count else _NARROW

    def sort(self) -> None:
        """Nodes of a layer in the order of the mean place of their neighbours, up and down in turn."""
        for sweep in range(_SWEEPS):
            near = self.before if sweep % 2 == 0 else self.after
            row = {at: float(n) for layer in self.layers for n, at in enumerate(layer)}
            for layer in self.layers if sweep % 2 == 0 else reversed(self.layers):
                means = {at: _mean([row[o] for o in near.get(at, ())], row[at]) for at in layer}
                layer.sort(key=lambda at: (means[at], at))
                row.update({at: float(n) for n, at in enumerate(layer)})

    def places(self) -> dict[int, float]:
        """The left edge of each."""
        left: dict[int, float] = {}
        for layer in self.layers:
            x = 0.0
            for at in layer:
                left[at] = x
                x += self.width(at) + _GAP
        for sweep in range(_SWEEPS):
            near = self.before if sweep % 2 == 0 else self.after
            for layer in self.layers if sweep % 2 == 0 else reversed(self.layers):
                wanted = [
                    _mean(
                        [left[o] + self.width(o) / 2 for o in near.get(at, ())], left[at] + self.width(at) / 2
                    )
                    - self.width(at) / 2
                    for at in layer
                ]
                left.update(zip(layer, _spread(wanted, [self.width(at) + _GAP for at in layer])))
        start = min(left.values(), default=0.0)
        return {at: x - start + _MARGIN for at, x in left.items()}

    def path(
        self, edge: tuple[int, int], left: Mapping[int, float], layer_y: Sequence[int]
    ) -> Iterator[tuple[int, int]]:
        a, b = edge
        yield round(left[a] + WIDTH / 2), layer_y[self.layer[a]] + HEIGHT
        for point in self.chains[edge]:
            x = round(left[point] + _NARROW / 2)
            yield x, layer_y[self.layer[point]]
            yield x, layer_y[self.layer[point]] + HEIGHT
        yield round(left[b] + WIDTH / 2), layer_y[self.layer[b]]


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node."""
    into: dict[int, list[int]] = {}
    for a, b in edges:
        into.setdefault(b, []).append(a)
    layer = [0] * count
    for at in range(count):
        layer[at] = 1 + max((layer[a] for a in into.get(at, ())), default=-1)
    return layer


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _spread(wanted: Sequence[float], room: Sequence[int]) -> list[float]:
    """Places in the same order with room for each, at the least sum of squares from what was wanted."""
    shifts = [0.0]
    for space in room[:-1]:
        shifts.append(shifts[-1] + space)
    groups: list[tuple[float, int]] = []
    for want, shift in zip(wanted, shifts):
        total, size = want - shift, 1
        while groups and groups[-1][0] / groups[-1][1] > total / size:
            last = groups.pop()
            total, size = total + last[0], size + last[1]
        groups.append((total, size))
    flat = [total / size for total, size in groups for _ in range(size)]
    return [x + shift for x, shift in zip(flat, shifts)]
