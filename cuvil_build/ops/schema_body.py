"""Operators that ONNX defines by a function body: the body for one call, at the opset of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import onnx
import onnx.defs
import onnx.version_converter
import onnx_ir as ir
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, helper

from cuvil_build.cuir.opset import IR_VERSION

TRAINING = ("ai.onnx.preview.training",)


@lru_cache(maxsize=4096)
def has_body(domain: str, op_type: str, opset: int) -> bool:
    schema = _schema(domain, op_type, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


@dataclass(frozen=True, slots=True)
class Body:
    """A function body for one call, attributes bound."""

    graph: GraphProto
    """Inputs by position; constants are nodes."""
    outputs: tuple[str, ...]
    """Names of the results by position; the graph lacks those that this call does not ask for."""


def call_body(node: ir.Node, types: Sequence[TypeProto | None], opsets: Mapping[str, int]) -> Body | None:
    """`types` has the type of each operand; None: absent."""
    call = ir.to_proto(node)
    call.name, call.doc_string = "", ""
    call.ClearField("metadata_props")
    # Equal calls have equal bodies: only which operands and results are there counts.
    for names in (call.input, call.output):
        for index, name in enumerate(names):
            names[index] = f"{'in' if names is call.input else 'out'}{index}" if name else ""
    found = [(t or TypeProto()).SerializeToString(deterministic=True) for t in types]
    opset = opsets.get(node.domain, 1 if node.domain else 0)
    body = _body(call.SerializeToString(deterministic=True), tuple(found), opset, opsets.get("", 0))
    return None if body is None else Body(GraphProto.FromString(body[0]), body[1])


def _schema(domain: str, op_type: str, opset: int) -> Any:
    if domain in TRAINING:
        return None
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@lru_cache(maxsize=512)
def _body(
    call: bytes, types: tuple[bytes, ...], opset: int, default_opset: int
) -> tuple[bytes, tuple[str, ...]] | None:
    node = NodeProto.FromString(call)
    schema = _schema(node.domain, node.op_type, opset)
    if schema is None:
        return None
    # Types of absent operands count: the body looks at which ones are there.
    given = list(types) + [b""] * max(0, len(schema.inputs) - len(types))
    if schema.has_context_dependent_function:
        version = _version(schema.context_dependent_function_opset_versions, opset)
        text = schema.get_context_dependent_function_with_opset_version(version, call, given)
    else:
        version = _version(schema.function_opset_versions, opset)
        text = schema.get_function_with_opset_version(version)
    function = FunctionProto.FromString(text)
    if not function.node:
        return None
    defaults = {a.name: a for a in function.attribute_proto}
    defaults |= {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    graph = bound_graph(function, defaults | {a.name: a for a in node.attribute})
    _give_types(graph, types)
    imports = {o.domain: o.version for o in function.opset_import}
    return lifted(graph, imports, default_opset).SerializeToString(), tuple(function.output)


def _version(versions: Sequence[int], opset: int) -> int:
    return max((v for v in versions if v <= opset), default=min(versions))


def bound_graph(function: FunctionProto, attributes: Mapping[str, AttributeProto]) -> GraphProto:
    """The body as a graph, references to attributes replaced by what the call gives."""
    graph = GraphProto(name=function.name or "body")
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
    made = {*function.input, *(name for node in function.node for name in node.output)}
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output if name in made)
    graph.node.extend(function.node)
    _bind(graph.node, attributes)
    return graph


def _bind(nodes: Sequence[NodeProto], attributes: Mapping[str, AttributeProto]) -> None:
    for node in nodes:
        kept = []
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                given = attributes.get(attribute.ref_attr_name)
                if given is None:
                    continue
                bound = AttributeProto()
                bound.CopyFrom(given)
                bound.name = attribute.name
                kept.append(bound)
                continue
            for inner in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
                _bind(inner.node, attributes)
            kept.append(attribute)
        copies = [AttributeProto.FromString(a.SerializeToString()) for a in kept]
        del node.attribute[:]
        node.attribute.extend(copies)


def _give_types(graph: GraphProto, types: Sequence[bytes]) -> None:
    for value, text in zip(graph.input, types):
        if text:
            value.type.CopyFrom(TypeProto.FromString(text))


def lifted(graph: GraphProto, imports: Mapping[str, int], opset: int) -> GraphProto:
    """The body in the opset of the model; newer bodies than the model's opset stay as they are."""
    own = imports.get("", opset)
    if own >= opset:
        return graph
    opsets = [helper.make_opsetid(d, opset_of) for d, opset_of in sorted(imports.items())]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    converted: ModelProto = onnx.version_converter.convert_version(model, opset)
    return converted.graph
