"""Walks over graphs with subgraphs and functions."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir


def subgraphs_of(node: ir.Node) -> list[tuple[str, ir.Graph]]:
    """Attribute name and graph of each body of the node, in the order of the names."""
    found = []
    for name in sorted(node.attributes):
        attribute = node.attributes[name]
        if attribute.type == ir.AttributeType.GRAPH:
            found.append((name, attribute.as_graph()))
        elif attribute.type == ir.AttributeType.GRAPHS:
            found += [(f"{name}[{i}]", g) for i, g in enumerate(attribute.as_graphs())]
    return found


def graphs_within(graph: ir.Graph) -> Iterator[ir.Graph]:
    """The graph itself, then all subgraphs, outer ones first."""
    yield graph
    for node in graph:
        for _, inner in subgraphs_of(node):
            yield from graphs_within(inner)


def all_graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph, its subgraphs, and the bodies of all functions with theirs."""
    yield from graphs_within(model.graph)
    for key in sorted(model.functions):
        yield from graphs_within(model.functions[key].graph)


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in all_graphs(model):
        yield from graph


def own_values(graph: ir.Graph) -> list[ir.Value]:
    """What the graph itself defines: inputs, initializers, outputs of its nodes (not of its subgraphs')."""
    made = [value for node in graph for value in node.outputs]
    return list(dict.fromkeys([*graph.inputs, *graph.initializers.values(), *made]))


def captures(graph: ir.Graph) -> list[ir.Value]:
    """Outer values that a subgraph reads, in the order of first use; those of its own subgraphs too."""
    found: dict[ir.Value, None] = {}
    inside: set[ir.Value] = set()
    for inner in graphs_within(graph):
        inside.update(own_values(inner))
    for inner in graphs_within(graph):
        for node in inner:
            found.update((v, None) for v in node.inputs if v is not None and v not in inside)
        found.update((v, None) for v in inner.outputs if v not in inside)
    return list(found)


def operands(node: ir.Node) -> list[ir.Value]:
    """All values that the node reads: its inputs, and what its subgraphs capture."""
    read = [v for v in node.inputs if v is not None]
    for _, inner in subgraphs_of(node):
        read += captures(inner)
    return list(dict.fromkeys(read))
