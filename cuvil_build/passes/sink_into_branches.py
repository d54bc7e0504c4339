"""Moves what reads a result of an `If` into its branches, where these give it in different ranks or dtypes.

Each branch gets its own copy of the readers (tail duplication), so that their results are what the `If` gives
now. `specialise-if` does this, one step after the other, until the branches agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from cuvil_build.cuir.locations import inherit, location_of
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.traverse import graphs_within, operands, own_values, subgraphs_of
from cuvil_build.errors import CuvilError, UnsupportedOperator
from cuvil_build.ops.infer import BRANCHES
from cuvil_build.passes.graph_pass import Rewrite


class RankFromData(CuvilError):
    """A result of an `If` whose rank or dtype only the run decides."""

    def __init__(self, message: str, node: ir.Node, value: ir.Value) -> None:
        super().__init__(message)
        self.node = node
        self.value = value


def sink(model: ir.Model, found: RankFromData, namer: Namer) -> Rewrite:
    """One step. Raises UnsupportedOperator where the value leaves the model, or a body that is no branch."""
    node, value = found.node, found.value
    while value.is_graph_output():
        owner = _owner(model.graph, node.graph)
        if owner is None or owner.op_type != "If":
            raise UnsupportedOperator(
                f"{found.message}: an output of the model, or of a loop's body, has one rank and dtype",
                loc=location_of(found.node),
                hint="fix or bound the dims that the condition depends on, or cut the model before it",
            )
        assert node.graph is not None
        value = owner.outputs[list(node.graph.outputs).index(value)]
        node = owner
    names = _sink(node, value, namer)
    return Rewrite("moves what depends on a rank that If decides into its branches", names)


def _owner(graph: ir.Graph, inner: ir.Graph | ir.Function | None) -> ir.Node | None:
    """The node that has `inner` as a body."""
    for outer in graphs_within(graph):
        for node in outer:
            if any(body is inner for _, body in subgraphs_of(node)):
                return node
    return None


def _sink(node: ir.Node, value: ir.Value, namer: Namer) -> tuple[str, ...]:
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    moved = _readers(graph, node, value)
    inside = {n for top in moved for n in (top, *_nested(top))}
    results = [v for n in moved for v in n.outputs if v.is_graph_output() or _is_read_outside(v, inside)]
    ports = {v: ir.Value(name=v.name) for v in node.outputs}
    for result, port in ports.items():
        for use in result.uses():
            if use.node in inside:
                use.node.replace_input_with(use.idx, port)
    kept = [n for n, v in enumerate(node.outputs) if v.uses() or v.is_graph_output()]
    fresh = ir.node("If", list(node.inputs), num_outputs=len(kept) + len(results), name=node.name)
    graph.insert_before(node, fresh)
    inherit([fresh], [node, *moved])
    for old, new in zip([*(node.outputs[n] for n in kept), *results], fresh.outputs):
        _take_place(old, new, namer, inside, graph)
    graph.remove(moved)
    region = ir.Graph(list(ports.values()), results, nodes=moved)
    copy = region.clone(allow_outer_scope_values=True)
    _rename(copy, namer)
    bodies = [node.attributes[name].as_graph() for name in BRANCHES]
    node.attributes.clear()
    for name, body, part in zip(BRANCHES, bodies, (region, copy)):
        _extend(body, part, kept)
        fresh.attributes.add(ir.AttrGraph(name, body))
    graph.remove(node, safe=True)
    graph.sort()
    return tuple(n.name or "" for n in moved)


def _readers(graph: ir.Graph, node: ir.Node, value: ir.Value) -> list[ir.Node]:
    """Nodes that read the value, and all on the way to them from the node's other results."""
    below: set[ir.Value] = set(node.outputs)
    dependent: list[ir.Node] = []
    wanted: set[ir.Node] = set()
    for other in graph:
        read = operands(other)
        if below.intersection(read):
            dependent.append(other)
            below.update(other.outputs)
        if value in read:
            wanted.add(other)
    needed: set[ir.Value] = set()
    found: list[ir.Node] = []
    for other in reversed(dependent):
        if other in wanted or needed.intersection(other.outputs):
            needed.update(operands(other))
            found.append(other)
    return found[::-1]


def _nested(node: ir.Node) -> list[ir.Node]:
    return [n for _, body in subgraphs_of(node) for graph in graphs_within(body) for n in graph]


def _is_read_outside(value: ir.Value, inside: set[ir.Node]) -> bool:
    return any(use.node not in inside for use in value.uses())


def _rename(graph: ir.Graph, namer: Namer) -> None:
    for inner in graphs_within(graph):
        for value in own_values(inner):
            if value.name:
                value.name = namer.value(value.name)
        for node in inner:
            node.name = namer.node(node.name or node.op_type)


def _extend(body: ir.Graph, part: ir.Graph, kept: Sequence[int]) -> None:
    """The part at the end of a branch, reading the branch's results; it gives the new ones."""
    results = list(body.outputs)
    added = list(part.outputs)
    part.outputs.clear()
    for port, result in zip(part.inputs, results):
        port.replace_all_uses_with(result)
    nodes = list(part)
    part.remove(nodes)
    body.extend(nodes)
    body.outputs[:] = [*(results[n] for n in kept), *added]


def _take_place(old: ir.Value, new: ir.Value, namer: Namer, inside: set[ir.Node], graph: ir.Graph) -> None:
    """Readers that stay where they are read the result of the new `If`, which has the old name."""
    name = old.name or "value"
    old.name = namer.value(f"{name}/branch")
    new.name = name
    for use in old.uses():
        if use.node not in inside:
            use.node.replace_input_with(use.idx, new)
    for place in [n for n, output in enumerate(graph.outputs) if output is old]:
        graph.outputs[place] = new
