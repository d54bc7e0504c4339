"""The model of a file as it came, for runs that import is compared with."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.errors import InvalidModel, Loc
from cuvil_build.frontends.onnx_file import SourceModel, read_model
from cuvil_build.frontends.onnx_outputs import own_outputs


def open_source(path: Path, label: str) -> ir.Model:
    """The file's own opset, operators and constants. Only what stops other tools is put right: the order of
    nodes, names that stand twice, functions, external data in files with several links."""
    source = read_model(path, label)
    for number, node in enumerate(source.proto.graph.node):
        node.name = f"{number}_{node.op_type}"
    try:
        model: ir.Model = ir.from_proto(source.proto)
    except ir.serde.SerdeError as error:
        raise InvalidModel("its graph can't be read", loc=Loc(label)) from error
    for graph in graphs_within(model.graph):
        _give_back(graph, source)
    own_outputs(model, label, source.opset)
    return model


def _give_back(graph: ir.Graph, source: SourceModel) -> None:
    """Large tensors, which are kept apart from the message."""
    for name, value in graph.initializers.items():
        if name in source.tensors:
            value.const_value = source.tensors[name]
    for node in graph:
        tensor = source.tensors.get(node.outputs[0].name or "") if node.op_type == "Constant" else None
        if tensor is not None:
            node.attributes["value"] = ir.Attr("value", ir.AttributeType.TENSOR, tensor)
