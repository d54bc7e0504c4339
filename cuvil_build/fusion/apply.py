"""Makes regions: nodes become a call of a function."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.guards import GUARDS_KEY
from cuvil_build.cuir.locations import inherit
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.opset import FUSED_DOMAIN, OPSET, default_opset
from cuvil_build.fusion.scope import Scope, is_read
from cuvil_build.ops.infer import attributes_of
from cuvil_build.ops.needed import is_shape_operand
from cuvil_build.ops.operator import Known
from cuvil_build.passes.rewire import replace_value

FUNCTION_VERSION = 1
NAMED_OPS = 5
"""Operators that a function's name spells out."""
DIGEST_LENGTH = 8


def extract(scope: Scope, namer: Namer, nodes: Iterable[ir.Node], result: ir.Value) -> ir.Node:
    """The nodes, with `result` as the only value that anything else reads, as one call."""
    inside = set(nodes)
    body = _in_order(inside, result)
    operands = _operands(body, inside)
    name = _function_name(scope, body, operands)
    key = (FUSED_DOMAIN, name, "")
    if key not in scope.model.functions:
        scope.model.functions[key] = _function(scope.model, name, body, operands, result)
    scope.model.opset_imports.setdefault(FUSED_DOMAIN, FUNCTION_VERSION)
    last = result.producer()
    assert last is not None and last.graph is not None
    call = ir.Node(
        FUSED_DOMAIN,
        name,
        operands,
        num_outputs=1,
        name=namer.node(f"{last.name}_fused"),
        version=FUNCTION_VERSION,
    )
    last.append(call)
    take_place(scope, result, call.outputs[0], namer)
    finish(scope, [call], body)
    return call


def _in_order(inside: set[ir.Node], result: ir.Value) -> list[ir.Node]:
    """Operands first, by the structure alone: equal regions have equal orders."""
    order: dict[ir.Node, None] = {}

    def visit(value: ir.Value | None) -> None:
        node = None if value is None else value.producer()
        if node is None or node not in inside or node in order:
            return
        for operand in node.inputs:
            visit(operand)
        order[node] = None

    visit(result)
    assert len(order) == len(inside), "a node of the region does not lead to its result"
    return list(order)


def _operands(body: Sequence[ir.Node], inside: set[ir.Node]) -> list[ir.Value]:
    found = [v for node in body for v in node.inputs if v is not None and v.producer() not in inside]
    return list(dict.fromkeys(found))


def _function_name(scope: Scope, body: Sequence[ir.Node], operands: Sequence[ir.Value]) -> str:
    names = [node.op_type for node in body]
    shown = (
        names if len(names) <= NAMED_OPS else [*names[: NAMED_OPS - 1], f"And{len(names) - NAMED_OPS + 1}"]
    )
    return f"{''.join(shown)}_{_digest(scope, body, operands)}"


def _digest(scope: Scope, body: Sequence[ir.Node], operands: Sequence[ir.Value]) -> str:
    """Of the body, and of what is known of its operands: one function has one call signature."""
    numbers = {value: f"x{i}" for i, value in enumerate(operands)}
    shaping = _shaping(scope, body)
    rows: list[object] = [[_signature(scope.known(value), value in shaping) for value in operands]]
    for node in body:
        inputs = ["" if v is None else numbers[v] for v in node.inputs]
        attributes = {name: _attribute_text(value) for name, value in attributes_of(node).items()}
        rows.append([node.domain, node.op_type, inputs, attributes])
        numbers[node.outputs[0]] = f"v{len(numbers)}"
    text = json.dumps(rows, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def _shaping(scope: Scope, body: Sequence[ir.Node]) -> set[ir.Value]:
    """Operands whose elements decide a shape: limits of a Range, scales of a Resize."""
    return {
        value
        for node in body
        for index, value in enumerate(node.inputs)
        if value is not None and is_shape_operand(node, index, scope.known(value))
    }


def _signature(known: Known, shapes: bool) -> list[object]:
    """Contents belong to it: shapes and axes that are operands decide what the body means. So do floats where
    they do; other ones are read when the module runs."""
    contents: object = None if known.contents is None else [str(e) for e in known.contents.reshape(-1)]
    if contents is None and shapes and known.constant is not None:
        contents = _attribute_text(np.asarray(known.constant))
    return [known.dtype.name, [str(dim) for dim in known.shape], contents, known.constant is not None]


def _attribute_text(value: Any) -> object:
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, (str, int, float, list)):
        return value
    raise AssertionError(f"an attribute of a region's node is a {type(value).__name__}")


def _function(
    model: ir.Model, name: str, body: Sequence[ir.Node], operands: Sequence[ir.Value], result: ir.Value
) -> ir.Function:
    inner: dict[ir.Value, ir.Value] = {}
    formals = [_copy_of(value, f"x{i}") for i, value in enumerate(operands)]
    inner.update(zip(operands, formals))
    nodes: list[ir.Node] = []
    for number, node in enumerate(body):
        value = node.outputs[0]
        inner[value] = _copy_of(value, "y0" if value is result else f"v{number}")
        clone = ir.Node(
            node.domain,
            node.op_type,
            [None if v is None else inner[v] for v in node.inputs],
            [node.attributes[key] for key in sorted(node.attributes)],
            outputs=[inner[value]],
            name=f"{node.op_type}_{number}",
        )
        clone.metadata_props.update({k: v for k, v in node.metadata_props.items() if k != GUARDS_KEY})
        nodes.append(clone)
    imports = {"": default_opset(dict(model.opset_imports)) or OPSET}
    imports |= {n.domain: model.opset_imports[n.domain] for n in body if n.domain not in ("", "ai.onnx")}
    graph = ir.Graph(formals, [inner[result]], nodes=nodes, opset_imports=imports, name=name)
    return ir.Function(FUSED_DOMAIN, name, graph=graph, attributes=[])


def _copy_of(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, type=value.type, shape=value.shape)


# What replacements do too --------------------------------------------------------------------------------


def take_place(scope: Scope, old: ir.Value, new: ir.Value, namer: Namer) -> None:
    """Readers of `old` read `new`, which gets its name, type and what is known of it."""
    name = old.name
    new.type, new.shape = old.type, old.shape
    new.metadata_props.update(old.metadata_props)
    scope.inference.known[new] = scope.known(old)
    replace_value(old, new)
    old.name = None
    new.name = name


def finish(scope: Scope, new: Sequence[ir.Node], old: Sequence[ir.Node]) -> None:
    """The old nodes go, and the constants that only they read."""
    inherit(new, old)
    for node in new:
        scope.adopt(node, old)
        scope.sources[node] = 0
        for gone in old:
            scope.sources[node] |= scope.sources.get(gone, 0)
    graph = old[0].graph
    assert graph is not None
    constants = [v for node in old for v in node.inputs if v is not None and v.is_initializer()]
    graph.remove(old, safe=True)
    for node in old:
        scope.drop(node)
    for value in dict.fromkeys(constants):
        owner = value.graph
        if isinstance(owner, ir.Graph) and not is_read(value) and not value.is_graph_input():
            del owner.initializers[str(value.name)]
    scope.forget()
