"""Lifts a model to CU-IR's opset, and finds again what the converter forgets: weights and origins."""

from __future__ import annotations

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference
import onnx.version_converter
import onnx_ir as ir

from cuvil_build.cuir.locations import set_location
from cuvil_build.cuir.naming import Namer
from cuvil_build.cuir.opset import IR_VERSION, OPSET, is_known_domain
from cuvil_build.cuir.traverse import graphs_within, own_values
from cuvil_build.errors import InvalidModel, Loc
from cuvil_build.frontends.onnx_file import Origin, SourceModel
from cuvil_build.frontends.onnx_nodes import graphs_of, node_text
from cuvil_build.frontends.onnx_scan import BATCHED_SCAN, unbatch_scans
from cuvil_build.ops import catalog
from cuvil_build.ops.infer import raise_all, unsupported_operator

VENDOR = "com.microsoft"
INITIALIZERS_APART = 4
"""From this format on, an initializer needs not be an input too; import has taken those inputs out."""


def lift(source: SourceModel, label: str) -> ir.Model:
    """The model at `OPSET` (a newer one keeps its own), constants as initializers of the main graph."""
    proto = source.proto
    proto.ir_version = max(proto.ir_version, INITIALIZERS_APART)
    if 0 < source.opset < OPSET:
        _refuse_undefined(source, label)
        _free_negative_dims(proto)
        _rehome(proto)
        if source.opset == BATCHED_SCAN:
            unbatch_scans(proto.graph)
        try:
            proto = onnx.version_converter.convert_version(proto, OPSET)
        except (
            onnx.version_converter.ConvertError,
            onnx.checker.ValidationError,
            onnx.shape_inference.InferenceError,
            RuntimeError,
            ValueError,
            IndexError,
        ) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InvalidModel(
                f"opset {source.opset} can't be lifted to {OPSET}: {first[:200]}",
                loc=Loc(label),
                hint=f"export the model with opset {OPSET} or nearer to it",
            ) from error
    proto.ir_version = max(proto.ir_version, IR_VERSION)
    model = _converted(proto, label)
    model.metadata_props.clear()
    _set_opsets(model)
    _separate_names(model)
    _hoist_constants(model, source, label)
    _locate(model, source, label)
    return model


def _converted(proto: onnx.ModelProto, label: str) -> ir.Model:
    try:
        model: ir.Model = ir.from_proto(proto)
    except ir.serde.SerdeError as error:
        cause = (str(error.__cause__ or error).strip().splitlines() or [""])[0]
        raise InvalidModel(f"its graph can't be read: {cause[:200]}", loc=Loc(label)) from error
    return model


def _free_negative_dims(proto: onnx.ModelProto) -> None:
    """Exporters mean any size by a negative one; the converter's shape inference ends the process at it."""
    bodies = [*graphs_of(proto.graph), *(f for f in proto.functions)]
    for body in bodies:
        ports = [] if isinstance(body, onnx.FunctionProto) else [*body.input, *body.output]
        for value in (*ports, *body.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.HasField("dim_value") and dim.dim_value < 0:
                    dim.ClearField("dim_value")


def _rehome(proto: onnx.ModelProto) -> None:
    """Optimisers of onnxruntime write its own operators into the default domain, where the converter knows
    none of them: they go to `com.microsoft`."""
    moved = False
    for node in (n for graph in graphs_of(proto.graph) for n in graph.node):
        if node.domain == "" and not onnx.defs.has(node.op_type) and catalog.find(VENDOR, node.op_type):
            node.domain, moved = VENDOR, True
    if moved and all(entry.domain != VENDOR for entry in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid(VENDOR, 1))


def _refuse_undefined(source: SourceModel, label: str) -> None:
    """The converter stops at an operator that ONNX does not define: all of them are told here, by node."""
    nodes = [n for graph in graphs_of(source.proto.graph) for n in graph.node if n.domain == ""]
    if all(onnx.defs.has(node.op_type) for node in nodes):
        return
    wrong = [
        node
        for node in nodes
        if catalog.find("", node.op_type) is None
        and not (onnx.defs.has(node.op_type) and onnx.defs.get_schema(node.op_type).deprecated)
    ]
    places = [Loc(label, node=node_text(node, source.opset)) for node in wrong]
    raise_all([unsupported_operator("", n.op_type).at(place) for n, place in zip(wrong, places)])


def _set_opsets(model: ir.Model) -> None:
    """Only the domains that nodes use: exporters import many more."""
    used = {node.domain for graph in graphs_within(model.graph) for node in graph}
    imports = {"" if d == "ai.onnx" else d: v for d, v in model.opset_imports.items()}
    model.opset_imports.clear()
    model.opset_imports[""] = imports.get("", OPSET)
    for domain in sorted(used - {""}):
        model.opset_imports[domain] = (
            imports.get(domain, 1) if is_known_domain(domain) else imports.get(domain, 0)
        )
    for graph in graphs_within(model.graph):
        if graph is not model.graph:
            graph.opset_imports.clear()


def _separate_names(model: ir.Model) -> None:
    """The converter counts its new values anew in each graph; they must differ in the whole model."""
    namer = Namer(model)
    seen: set[str] = set()
    for graph in graphs_within(model.graph):
        for value in own_values(graph):
            if value.name and value.name in seen:
                value.name = namer.value(value.name)
            seen.add(value.name or "")


def _hoist_constants(model: ir.Model, source: SourceModel, label: str) -> None:
    """All constants become initializers of the main graph, whichever way and wherever the file holds them."""
    for graph in list(graphs_within(model.graph)):
        for name in list(graph.initializers):
            value = graph.initializers[name]
            value.const_value = _tensor_of(value, source)
            if graph is not model.graph:
                del graph.initializers[name]
                _adopt(model, value)
        for node in list(graph):
            if node.op_type == "Constant" and node.domain == "":
                _hoist_node(model, node, source, label)


def _hoist_node(model: ir.Model, node: ir.Node, source: SourceModel, label: str) -> None:
    old, graph = node.outputs[0], node.graph
    assert graph is not None
    tensor = source.tensors.get(old.name or "") or _constant_tensor(node, label)
    if old.is_graph_output():
        # A subgraph or the model gives the constant itself: the output stays a node's.
        copy = ir.node("Identity", [_new_initializer(model, f"{old.name}.constant", tensor)])
        graph.insert_before(node, copy)
        name, old.name = old.name, f"{old.name}.replaced"
        copy.outputs[0].name = name
        old.replace_all_uses_with(copy.outputs[0], replace_graph_outputs=True)
        graph.remove(node)
        return
    name, old.name = old.name or "", f"{old.name}.replaced"
    old.replace_all_uses_with(_new_initializer(model, name, tensor))
    graph.remove(node)


def _new_initializer(model: ir.Model, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    tensor.name = name
    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
    )
    _adopt(model, value)
    return value


def _adopt(model: ir.Model, value: ir.Value) -> None:
    model.graph.register_initializer(value)


def _tensor_of(value: ir.Value, source: SourceModel) -> ir.TensorProtocol:
    """The kept tensor, or the small one as an array: nothing may hold on to the whole message."""
    kept = source.tensors.get(value.name or "")
    if kept is not None:
        return kept
    assert value.const_value is not None
    return _detached(value.const_value)


def _detached(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if tensor.dtype == ir.DataType.STRING:
        return tensor
    return ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)


def _constant_tensor(node: ir.Node, label: str) -> ir.TensorProtocol:
    """The value of a Constant node, in any of its six spellings."""
    for name, attribute in node.attributes.items():
        if name == "value":
            return _detached(attribute.as_tensor())
        if name in ("value_int", "value_ints"):
            return ir.tensor(attribute.value, dtype=ir.DataType.INT64)
        if name in ("value_float", "value_floats"):
            return ir.tensor(attribute.value, dtype=ir.DataType.FLOAT)
    raise InvalidModel(
        "a Constant without a dense value", loc=Loc(label, node=f"node '{node.name}' (Constant)")
    )


# Origins ---------------------------------------------------------------------------------------------------


def _locate(model: ir.Model, source: SourceModel, label: str) -> None:
    """Every node says where it came from; nodes that the converter made come from their neighbours."""
    graphs = list(graphs_within(model.graph))
    namer = Namer(model)
    named: set[str] = set()
    for graph in graphs:
        last = Origin("", "", source.opset)
        for node in graph:
            origin = _origin(node, source) or _neighbour(node, source) or last
            last = origin
            set_location(node, label, origin.name, origin.op or node.op_type, origin.opset)
            for key, text in origin.metadata:
                node.metadata_props.setdefault(key, text)
            if not node.name or node.name in named:
                node.name = namer.node(node.name or f"{node.op_type}_{node.outputs[0].name}")
            named.add(node.name)


def _origin(node: ir.Node, source: SourceModel) -> Origin | None:
    return next((source.origins[v.name] for v in node.outputs if v.name in source.origins), None)


def _neighbour(node: ir.Node, source: SourceModel) -> Origin | None:
    """The first reader from the file, else the maker of an operand."""
    for value in node.outputs:
        for reader in value.consumers():
            found = _origin(reader, source)
            if found is not None:
                return found
    makers = (v.producer() for v in node.inputs if v is not None)
    return next((o for m in makers if m is not None and (o := _origin(m, source)) is not None), None)
