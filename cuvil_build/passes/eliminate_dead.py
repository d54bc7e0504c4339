"""Removes nodes, initializers and functions that no output depends on."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.traverse import graphs_within, subgraphs_of
from cuvil_build.passes.graph_pass import GraphPass, PassResult, Rewrite


def run(model: ir.Model) -> PassResult:
    removed: list[str] = []
    dropped: list[str] = []
    _sweep(model.graph, removed)
    for key in sorted(model.functions):
        _sweep(model.functions[key].graph, removed)
    _drop_functions(model)
    for graph in graphs_within(model.graph):
        dropped += _drop_initializers(graph)
    rewrites = [Rewrite("removes a node that nothing reads", (name,)) for name in sorted(removed)]
    rewrites += [Rewrite(f"removes the constant '{name}', which nothing reads", ()) for name in dropped]
    return PassResult(model, tuple(rewrites))


def _sweep(graph: ir.Graph, removed: list[str]) -> None:
    """Last nodes first: a node that is removed frees those before it."""
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            _release(node)
            graph.remove(node, safe=True)
            removed.append(node.name or "")
            continue
        for _, inner in subgraphs_of(node):
            _sweep(inner, removed)


def _release(node: ir.Node) -> None:
    """Nodes inside of a removed node's bodies read outer values no longer."""
    for _, inner in subgraphs_of(node):
        for deep in graphs_within(inner):
            for inside in deep:
                for index in range(len(inside.inputs)):
                    inside.replace_input_with(index, None)


def _drop_initializers(graph: ir.Graph) -> list[str]:
    values = list(graph.initializers.items())
    dead = [name for name, value in values if not value.uses() and not value.is_graph_output()]
    for name in dead:
        del graph.initializers[name]
    return dead


def _drop_functions(model: ir.Model) -> None:
    called = {n.op_identifier() for g in graphs_within(model.graph) for n in g}
    waiting = [key for key in called if key in model.functions]
    while waiting:
        for inner in graphs_within(model.functions[waiting.pop()].graph):
            fresh = {n.op_identifier() for n in inner} & model.functions.keys() - called
            called |= fresh
            waiting += fresh
    for key in [key for key in model.functions if key not in called]:
        del model.functions[key]


PASS = GraphPass("eliminate-dead", run)
