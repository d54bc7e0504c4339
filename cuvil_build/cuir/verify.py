"""The rules of a CU-IR graph, checked before and after every pass."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from cuvil_build.cuir.dims import read_dims
from cuvil_build.cuir.guards import RELATIONS, read_guards
from cuvil_build.cuir.locations import has_location
from cuvil_build.cuir.opset import FUSED_DOMAIN, OPSET, default_opset, is_known_domain
from cuvil_build.cuir.traverse import all_nodes, captures, own_values, subgraphs_of
from cuvil_build.cuir.types import dtype_of, shape_of
from cuvil_build.errors import CuvilError, InvalidGraph

MAX_FOUND = 10


def verify(model: ir.Model, *, typed: bool = True) -> None:
    """Raises InvalidGraph with the first broken rules; `typed=False` skips dtypes and shapes."""
    found: list[str] = []
    for problem in _problems(model, typed):
        found.append(problem)
        if len(found) == MAX_FOUND:
            break
    if found:
        raise InvalidGraph("; ".join(found))


def _problems(model: ir.Model, typed: bool) -> Iterator[str]:
    yield from _opset_problems(model)
    yield from _name_problems(model)
    yield from _graph_problems(model.graph, set(), typed)
    yield from _input_problems(model)
    for key in sorted(model.functions):
        yield from _function_problems(model.functions[key])
    for node in all_nodes(model):
        yield from _node_problems(node, model)


def _opset_problems(model: ir.Model) -> Iterator[str]:
    opset = default_opset(model.opset_imports)
    if opset and opset < OPSET:
        yield f"opset {opset} is older than {OPSET}"
    for domain in sorted(model.opset_imports):
        if not is_known_domain(domain):
            yield f"domain '{domain}' is not one of CU-IR's"


def _name_problems(model: ir.Model) -> Iterator[str]:
    scopes = [[model.graph, *model.graph.subgraphs()]]
    scopes += [[f.graph, *f.graph.subgraphs()] for _, f in sorted(model.functions.items())]
    for scope in scopes:
        seen: dict[str, ir.Value] = {}
        nodes: set[str] = set()
        for graph in scope:
            for value in own_values(graph):
                if value.name is None:
                    yield f"a value of graph '{graph.name}' has no name"
                elif value.name and seen.setdefault(value.name, value) is not value:
                    yield f"two values are named '{value.name}'"
            for node in graph:
                if not node.name or node.name in nodes:
                    yield f"node name '{node.name or ''}' is empty or not unique"
                nodes.add(node.name or "")


def _graph_problems(graph: ir.Graph, outer: set[ir.Value], typed: bool) -> Iterator[str]:
    """Definitions come before uses; everything has a type."""
    visible = outer | set(graph.inputs) | set(graph.initializers.values())
    for value in graph.initializers.values():
        if value.const_value is None:
            yield f"initializer '{value.name}' has no value"
    for node in graph:
        for read in node.inputs:
            if read is not None and read not in visible:
                yield f"node '{node.name}' reads '{read.name}', which is not defined before it"
        for _, inner in subgraphs_of(node):
            yield from _graph_problems(inner, visible, typed)
        visible.update(node.outputs)
    for value in graph.outputs:
        if value not in visible:
            yield f"output '{value.name}' is never defined"
        elif value in outer:
            yield f"output '{value.name}' of a subgraph is an outer value"
    if typed:
        for own in own_values(graph):
            yield from _type_problems(own)


def _type_problems(value: ir.Value) -> Iterator[str]:
    if value.name == "" and not value.uses():
        return
    what = f"value '{value.name}'"
    try:
        dtype_of(value.dtype, what)
        shape_of(value)
    except CuvilError as error:
        yield error.message if what in error.message else f"{what}: {error.message}"


def _input_problems(model: ir.Model) -> Iterator[str]:
    known = read_dims(model).keys()
    for value in model.graph.inputs:
        if value.shape is None or any(isinstance(d, ir.SymbolicDim) and d.value is None for d in value.shape):
            continue
        for dim in value.shape:
            text = dim.value if isinstance(dim, ir.SymbolicDim) else None
            if text is not None and not text.isidentifier():
                yield f"input '{value.name}' has the dim '{text}', which is no name"
            elif known and text is not None and text not in known:
                yield f"input '{value.name}' has the dim '{text}', which the model's dims lack"


def _function_problems(function: ir.Function) -> Iterator[str]:
    name = f"function '{function.name}'"
    if function.graph.initializers:
        yield f"{name} holds initializers"
    if function.domain == FUSED_DOMAIN:
        for value in captures(function.graph):
            yield f"{name} captures '{value.name}'"
    else:
        yield f"{name} is of domain '{function.domain}'"


def _node_problems(node: ir.Node, model: ir.Model) -> Iterator[str]:
    if not has_location(node):
        yield f"node '{node.name}' ({node.op_type}) has no location"
    if node.domain == FUSED_DOMAIN and node.op_identifier() not in model.functions:
        yield f"node '{node.name}' calls '{node.op_type}', which is not defined"
    if node.domain not in model.opset_imports and not (
        node.domain == "" and "ai.onnx" in model.opset_imports
    ):
        yield f"node '{node.name}' is of domain '{node.domain}', which the model does not import"
    for guard in read_guards(node):
        if guard.relation not in RELATIONS:
            yield f"node '{node.name}' has a guard with the relation '{guard.relation}'"
