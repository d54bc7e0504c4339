"""CU-IR as text: ONNX's own textual syntax, for case files and for people."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx.printer
import onnx_ir as ir

from cuvil_build.cuir.locations import has_location, set_location
from cuvil_build.cuir.opset import IR_VERSION, OPSET
from cuvil_build.cuir.traverse import all_nodes
from cuvil_build.errors import InvalidModel


def parse_model(text: str) -> ir.Model:
    """A model from text that is a graph (`agraph (...) => (...) { ... }`), or a whole model with a header."""
    body = text.strip()
    if not body.startswith("<"):
        body = f'<ir_version: {IR_VERSION}, opset_import: ["" : {OPSET}]>\n{body}'
    try:
        proto = onnx.parser.parse_model(body)
    except onnx.parser.ParseError as error:
        raise InvalidModel(f"not ONNX text: {str(error).strip()}") from error
    model: ir.Model = ir.from_proto(proto)
    for index, node in enumerate(all_nodes(model)):
        node.name = node.name or f"{node.op_type}_{index}"
        if not has_location(node):
            set_location(node, "text", node.name, node.op_type, OPSET)
    return model


def print_graph(model: ir.Model) -> str:
    """Main graph and functions, without metadata and node names: the form of case files."""
    proto = ir.to_proto(model)
    _strip(proto.graph)
    lines = [onnx.printer.to_text(proto.graph)]
    for function in proto.functions:
        function.ClearField("metadata_props")
        function.ClearField("value_info")
        _strip_nodes(function.node)
        lines.append(onnx.printer.to_text(function))
    return "\n".join(line.strip() for line in lines) + "\n"


def _strip(graph: onnx.GraphProto) -> None:
    graph.ClearField("metadata_props")
    graph.ClearField("value_info")
    for tensor in graph.initializer:
        tensor.ClearField("metadata_props")
    _strip_nodes(graph.node)


def _strip_nodes(nodes: list[onnx.NodeProto]) -> None:
    for node in nodes:
        node.ClearField("metadata_props")
        node.ClearField("name")
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _strip(attribute.g)
