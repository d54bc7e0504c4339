"""Holds the nodes of a file to ONNX's own definitions, before any code of others walks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx.defs
from onnx import AttributeProto, GraphProto, NodeProto
from onnx.defs import OpSchema

from cuvil_build.errors import CuvilError, InvalidModel, Loc

_Kind = AttributeProto.AttributeType
_PLAIN: Mapping[int, str] = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
}
_REPEATED: Mapping[int, str] = {
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}


def bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph, and all graphs inside of its nodes."""
    yield graph
    for node in graph.node:
        for inner in bodies_of(node):
            yield from graphs_of(inner)


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    for inner in graphs_of(graph):
        yield from inner.node


def node_text(node: NodeProto, opset: int) -> str:
    name = node.name or next((o for o in node.output if o), "")
    return f"node '{name}' ({node.op_type}, opset {opset})"


def complete_types(node: NodeProto, label: str, opset: int) -> None:
    """Old writers leave out the type of attributes: it is the one of the field that is set."""
    for attribute in node.attribute:
        if attribute.type != AttributeProto.UNDEFINED or attribute.ref_attr_name:
            continue
        found = [kind for kind, name in _PLAIN.items() if attribute.HasField(name)]
        found += [kind for kind, name in _REPEATED.items() if len(getattr(attribute, name))]
        if len(found) != 1:
            raise InvalidModel(
                f"attribute '{attribute.name}' has no type", loc=Loc(label, node=node_text(node, opset))
            )
        attribute.type = found[0]


def node_errors(graph: GraphProto, versions: Mapping[str, int], label: str) -> list[CuvilError]:
    """One for each node that breaks the definition of its operator."""
    opset = versions.get("", 0)
    errors: list[CuvilError] = []
    for node in nodes_of(graph):
        problem = next(_problems(node, _schema(node, versions)), None)
        if problem is not None:
            errors.append(InvalidModel(problem, loc=Loc(label, node=node_text(node, opset))))
    return errors


def _schema(node: NodeProto, versions: Mapping[str, int]) -> OpSchema | None:
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        return onnx.defs.get_schema(node.op_type, versions.get(domain, 1), domain)
    except onnx.defs.SchemaError:
        return None


def _problems(node: NodeProto, schema: OpSchema | None) -> Iterator[str]:
    if not any(node.output):
        yield "has no output"
    yield from _attribute_problems(node)
    if schema is None:
        return
    yield from _operand_problems(node, schema)
    yield from _branch_problems(node)
    given = {a.name: a for a in node.attribute}
    for name, formal in schema.attributes.items():
        attribute = given.get(name)
        if attribute is None and formal.required:
            yield f"lacks the attribute '{name}'"
        if attribute is None:
            continue
        have, want = _Kind.Name(attribute.type), str(formal.type).rpartition(".")[2]
        if have != want:
            yield f"attribute '{name}' is of type {have.lower()}, {node.op_type} defines {want.lower()}"


def _attribute_problems(node: NodeProto) -> Iterator[str]:
    seen: set[str] = set()
    for attribute in node.attribute:
        name = attribute.name
        if not name or name in seen:
            yield f"has the attribute '{name}' twice" if name else "has an attribute without a name"
        seen.add(name)
        if attribute.ref_attr_name:
            yield f"attribute '{name}' refers to one of a function, and the node is in none"
        field = _PLAIN.get(attribute.type)
        if field in ("t", "g", "sparse_tensor", "tp") and not attribute.HasField(field):
            yield f"attribute '{name}' has no value"
        texts = [attribute.s] if attribute.type == AttributeProto.STRING else list(attribute.strings)
        if any(not _is_text(text) for text in texts):
            yield f"attribute '{name}' is no UTF-8 text"


def _branch_problems(node: NodeProto) -> Iterator[str]:
    if node.op_type != "If" or node.domain not in ("", "ai.onnx"):
        return
    for attribute in node.attribute:
        if len(attribute.g.output) != len(node.output):
            yield f"has {len(node.output)} outputs, its {attribute.name} has {len(attribute.g.output)}"
        if attribute.g.input:
            yield f"its {attribute.name} takes inputs, which a branch has none of"


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _operand_problems(node: NodeProto, schema: OpSchema) -> Iterator[str]:
    for what, names, least, most, formals in (
        ("operand", node.input, schema.min_input, schema.max_input, schema.inputs),
        ("output", node.output, schema.min_output, schema.max_output, schema.outputs),
    ):
        if not least <= len(names) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            count = f"{len(names)} {what}" + "s" * (len(names) != 1)
            yield f"has {count}, {node.op_type} defines {wanted}"
        for name, formal in zip(names, formals):
            if not name and formal.option == OpSchema.FormalParameterOption.Single and what == "operand":
                yield f"lacks its {what} '{formal.name}'"
