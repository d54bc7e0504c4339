"""Names of new values and nodes: unique in the whole model, the same on every run."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.traverse import all_graphs, own_values


def fresh_name(base: str, taken: set[str]) -> str:
    """The base, or the base with the first free number; takes the name."""
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    taken.add(name)
    return name


class Namer:
    """Gives names that the model does not have."""

    def __init__(self, model: ir.Model) -> None:
        self._values: set[str] = set()
        self._nodes: set[str] = set()
        for graph in all_graphs(model):
            self._values.update(v.name for v in own_values(graph) if v.name)
            self._nodes.update(node.name for node in graph if node.name)

    def value(self, base: str) -> str:
        return fresh_name(base, self._values)

    def node(self, base: str) -> str:
        return fresh_name(base, self._nodes)
