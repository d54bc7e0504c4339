"""The build graph: nodes as plain data, their order and their neighbours from networkx."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import networkx as nx

from cuvil_build.errors import Internal, InvalidPipeline, UnknownStep, nearest
from cuvil_build.plan.node import Node


class Dag:
    """Nodes by id with their dependencies; every listing is sorted, and an order never depends on hashing."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._graph: nx.DiGraph[str] = nx.DiGraph()
        self._nodes: dict[str, Node] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        if node.id in self._nodes:
            raise InvalidPipeline(f"two steps are named '{node.id}'")
        self._nodes[node.id] = node
        self._graph.add_node(node.id)
        for source in node.inputs.values():
            self._graph.add_edge(source.node, node.id)

    def __contains__(self, step: str) -> bool:
        return step in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        """Nodes in the one topological order: dependencies first, then by id."""
        unknown = sorted(set(self._graph) - set(self._nodes))
        if unknown:
            raise Internal(f"steps depend on '{unknown[0]}', which is no step")
        try:
            order = list(nx.lexicographical_topological_sort(self._graph))
        except nx.NetworkXUnfeasible:
            cycle = " -> ".join(edge[0] for edge in nx.find_cycle(self._graph))
            raise InvalidPipeline(f"steps depend on each other: {cycle}") from None
        return iter([self._nodes[step] for step in order])

    def __getitem__(self, step: str) -> Node:
        node = self._nodes.get(step)
        if node is None:
            raise UnknownStep(f"no step '{step}'", hint=nearest(step, self._nodes))
        return node

    @property
    def ids(self) -> list[str]:
        return sorted(self._nodes)

    def before(self, step: str) -> list[str]:
        return sorted(self._graph.predecessors(step))

    def after(self, step: str) -> list[str]:
        return sorted(self._graph.successors(step))

    def ancestors(self, steps: Iterable[str]) -> set[str]:
        """The steps and everything that they depend on."""
        found: set[str] = set()
        for step in steps:
            found |= {step} | nx.ancestors(self._graph, step)
        return found

    def descendants(self, steps: Iterable[str]) -> set[str]:
        """The steps and everything that depends on them."""
        found: set[str] = set()
        for step in steps:
            found |= {step} | nx.descendants(self._graph, step)
        return found

    def restricted(self, steps: set[str]) -> Dag:
        """The part made of these steps; they must include what they depend on."""
        return Dag(node for node in self if node.id in steps)
