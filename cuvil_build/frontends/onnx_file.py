"""Reads an ONNX file that nobody vouches for: damaged, hostile, unsorted, with weights in other files."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx_ir as ir

# protobuf ships no types
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from cuvil_build.cuir.external_data import external_bytes, tensor_of
from cuvil_build.cuir.naming import fresh_name
from cuvil_build.cuir.weights import INLINE_NBYTES
from cuvil_build.errors import InvalidModel, Loc, NotYet
from cuvil_build.frontends.onnx_functions import inline_functions
from cuvil_build.frontends.onnx_nodes import (
    bodies_of,
    complete_types,
    graphs_of,
    node_errors,
    node_text,
    nodes_of,
)
from cuvil_build.ops.infer import raise_all

MAX_NBYTES = 1 << 31
LARGEST_BITS = 1 << 51
"""Of a tensor, sizes of 0 counted as 1: numpy refuses more, whatever the file holds."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node stood in the file."""

    name: str
    op: str
    opset: int
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """Of an output; what the file leaves open is 0, None, or a dim that is None."""

    dtype: int
    shape: tuple[int | None, ...] | None


@dataclass(slots=True)
class SourceModel:
    """A model with unique names and sorted nodes; large tensors are kept apart from the protobuf message."""

    proto: ModelProto
    opset: int
    tensors: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    """Large tensors by the name of the initializer, or of the Constant node's output."""
    origins: dict[str, Origin] = field(default_factory=dict)
    """By the name of each node output."""
    declared: dict[str, Declared] = field(default_factory=dict)
    """What the file says of the outputs, by name."""
    notes: list[str] = field(default_factory=list)
    """What is not as the file says it, for people."""


def read_model(path: Path, label: str) -> SourceModel:
    """The model of a file; `label` is what errors and locations call it."""
    proto = _parse(path, label)
    versions = _versions(proto, label)
    _import_once(proto, versions)
    proto = inline_functions(proto, label)
    opset = versions.get("", 0)
    for node in nodes_of(proto.graph):
        complete_types(node, label, opset)
    raise_all(node_errors(proto.graph, versions, label))
    source = SourceModel(proto, opset)
    _Tidy(source, label).graph(proto.graph, {})
    _check_inputs(proto.graph, label)
    _take_outputs(proto.graph, source)
    for graph in graphs_of(proto.graph):
        _take_tensors(graph, source, path.parent, label)
        source.notes += _drop_default_inputs(graph)
        graph.ClearField("value_info")
        graph.ClearField("metadata_props")
        for port in (*graph.input, *graph.output, *graph.initializer):
            port.ClearField("metadata_props")
        graph.ClearField("quantization_annotation")
    return source


def damaged(label: str, message: str, hint: str = "", node: str = "") -> InvalidModel:
    return InvalidModel(message, loc=Loc(label, node=node), hint=hint)


def _parse(path: Path, label: str) -> ModelProto:
    size = path.stat().st_size
    if size == 0:
        raise damaged(label, "the file is empty")
    if size >= MAX_NBYTES:
        raise damaged(
            label, "the file has 2 GiB or more, the limit of protobuf", hint="export with external data"
        )
    proto = ModelProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise damaged(
            label, "not an ONNX model, or a truncated one", hint="export or fetch it again"
        ) from error
    broken = next(_broken_texts(proto), None)
    if broken is not None:
        raise damaged(label, f"the name {broken!r} is no UTF-8 text", hint="it may be damaged")
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise damaged(label, "the file holds no graph", hint="it may be truncated, or no ONNX model")
    if not proto.graph.output:
        raise damaged(label, "the graph has no outputs")
    return proto


def _broken_texts(message: Message) -> Iterator[bytes]:
    """Texts that are no UTF-8: protobuf gives them as bytes."""
    for descriptor, value in message.ListFields():
        if descriptor.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        for part in (value,) if isinstance(value, str | bytes | Message) else value:
            if isinstance(part, Message):
                yield from _broken_texts(part)
            elif isinstance(part, bytes):
                yield part[:40]


def _versions(proto: ModelProto, label: str) -> dict[str, int]:
    """Of each domain that the model imports."""
    versions: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            raise damaged(label, f"two opsets of the domain '{domain}': {versions[domain]}, {entry.version}")
        if domain in ("", "ai.onnx.ml"):
            _check_version(domain, entry.version, label)
    if not versions:
        raise damaged(label, "the model names no opset")
    nodes = [node for graph in (proto.graph, *proto.functions) for node in graph.node]
    if "" not in versions and any(n.domain in ("", "ai.onnx") for n in nodes):
        raise damaged(label, "the model names no opset of the default domain, and uses its operators")
    return versions


def _import_once(proto: ModelProto, versions: Mapping[str, int]) -> None:
    """Some exporters import a domain twice, of which the converter changes one."""
    del proto.opset_import[:]
    for domain, version in versions.items():
        proto.opset_import.append(onnx.helper.make_opsetid(domain, version))


def _check_version(domain: str, version: int, label: str) -> None:
    newest = onnx.defs.onnx_ml_opset_version() if domain else onnx.defs.onnx_opset_version()
    if not 1 <= version <= newest:
        name = f"opset {version} of '{domain}'" if domain else f"opset {version}"
        raise damaged(label, f"{name} is not known: 1 to {newest} are", hint="export with an older opset")


# Names and order -------------------------------------------------------------------------------------------


class _Tidy:
    """Makes value names unique in the whole model, and puts nodes behind what they read."""

    def __init__(self, source: SourceModel, label: str) -> None:
        self.source = source
        self.label = label
        self.taken: set[str] = set()

    def graph(self, graph: GraphProto, outer: dict[str, str]) -> None:
        if graph.sparse_initializer:
            raise NotYet("sparse initializers", loc=Loc(self.label))
        if not outer and not all(v.name for v in graph.input):
            raise damaged(self.label, "an input of the graph has no name")
        own = self.define(graph)
        names = outer | own
        for node in graph.node:
            node.domain = "" if node.domain == "ai.onnx" else node.domain
            self.rename(node, names)
        for value in (*graph.input, *graph.initializer, *graph.output):
            if value.name not in names:
                raise damaged(self.label, f"output '{value.name}' is never defined")
            if value.name in own or value.name not in outer:
                value.name = names[value.name]
            else:
                value.name = self.handed_on(graph, names[value.name])
        self.sort(graph)

    def handed_on(self, graph: GraphProto, name: str) -> str:
        """A body that gives an outer value gets a node for it."""
        made = fresh_name(f"{name}.inner", self.taken)
        graph.node.append(NodeProto(op_type="Identity", input=[name], output=[made]))
        self.source.origins[made] = Origin(name, "Identity", self.source.opset)
        return made

    def define(self, graph: GraphProto) -> dict[str, str]:
        """Unique names for all that the graph defines itself."""
        given = {v.name for v in graph.input}
        if len(given) != len(graph.input):
            raise damaged(self.label, "two inputs have the same name")
        stored = [t.name for t in graph.initializer]
        names = {name: fresh_name(name, self.taken) for name in [v.name for v in graph.input]}
        defined = set(names)
        for name in stored:
            if name in defined and name not in given:
                raise damaged(self.label, f"two initializers are named '{name}'")
            if not name:
                raise damaged(self.label, "an initializer has no name")
            defined.add(name)
            names.setdefault(name, "")
            names[name] = names[name] or fresh_name(name, self.taken)
        for node in graph.node:
            for name in node.output:
                if name and name in defined:
                    text = node_text(node, self.source.opset)
                    raise damaged(self.label, f"value '{name}' is defined twice", node=text)
                if name:
                    defined.add(name)
                    names[name] = fresh_name(name, self.taken)
        return names

    def rename(self, node: NodeProto, names: dict[str, str]) -> None:
        text = node_text(node, self.source.opset)
        label = node.name or next((o for o in node.output if o), "")
        for index, name in enumerate(node.input):
            if name and name not in names:
                raise damaged(self.label, f"reads '{name}', which nothing defines", node=text)
            node.input[index] = names[name] if name else ""
        # What we write ourselves is trusted, so none of it may come from a file.
        given = {p.key: p.value for p in node.metadata_props if not p.key.startswith("cuvil.")}
        metadata = tuple(sorted(given.items()))
        node.ClearField("metadata_props")
        for index, name in enumerate(node.output):
            if name:
                node.output[index] = names[name]
                origin = Origin(label, node.op_type, self.source.opset, metadata)
                self.source.origins[names[name]] = origin
        for body in bodies_of(node):
            self.graph(body, names)

    def sort(self, graph: GraphProto) -> None:
        """Stable; a cycle is named by one of its nodes."""
        maker = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
        needs = [{maker[n] for n in _reads(node) if n in maker} for node in graph.node]
        if all(i > max(need, default=-1) for i, need in enumerate(needs)):
            return
        readers: list[list[int]] = [[] for _ in needs]
        for index, need in enumerate(needs):
            for source in need:
                readers[source].append(index)
        missing = [len(need) for need in needs]
        ready = [i for i, count in enumerate(missing) if not count]
        order = []
        while ready:
            index = heapq.heappop(ready)
            order.append(index)
            for reader in readers[index]:
                missing[reader] -= 1
                if not missing[reader]:
                    heapq.heappush(ready, reader)
        if len(order) < len(needs):
            stuck = next(i for i, count in enumerate(missing) if count)
            text = node_text(graph.node[stuck], self.source.opset)
            raise damaged(self.label, "the graph has a cycle", node=text)
        nodes = [NodeProto.FromString(graph.node[i].SerializeToString()) for i in order]
        del graph.node[:]
        graph.node.extend(nodes)


def _reads(node: NodeProto) -> Iterable[str]:
    yield from node.input
    for body in bodies_of(node):
        for inner in body.node:
            yield from _reads(inner)
        yield from (v.name for v in body.output)


# Tensors ---------------------------------------------------------------------------------------------------


def _drop_default_inputs(graph: GraphProto) -> list[str]:
    """An initializer that is an input too is a default that callers could override: here it is a constant."""
    stored = {t.name for t in graph.initializer}
    names = [v.name for v in graph.input if v.name in stored]
    if not names:
        return []
    kept = [v for v in graph.input if v.name not in stored]
    del graph.input[:]
    graph.input.extend(kept)
    return [f"input '{name}' has a default: it is a constant of the module" for name in names]


# Inputs and outputs ----------------------------------------------------------------------------------------


def _check_inputs(graph: GraphProto, label: str) -> None:
    stored = {t.name for t in graph.initializer}
    for value in graph.input:
        kind = value.type.WhichOneof("value")
        if value.name in stored:
            continue
        if kind is None or (kind == "tensor_type" and not value.type.tensor_type.elem_type):
            raise damaged(label, f"input '{value.name}' has no dtype", hint="export the model with types")
        if kind != "tensor_type":
            raise NotYet(f"input '{value.name}' is a {kind.removesuffix('_type')}", loc=Loc(label))
        if value.type.tensor_type.elem_type not in TensorProto.DataType.values():
            number = value.type.tensor_type.elem_type
            raise damaged(label, f"input '{value.name}' has the unknown dtype {number}")


def _take_outputs(graph: GraphProto, source: SourceModel) -> None:
    """Each once, and without what the file says of them: import finds it again, and compares."""
    kept: dict[str, ValueInfoProto] = {}
    for value in graph.output:
        if value.name in kept:
            source.notes.append(f"output '{value.name}' is listed twice: it is given once")
            continue
        kept[value.name] = ValueInfoProto(name=value.name)
        source.declared[value.name] = _declared(value)
    del graph.output[:]
    graph.output.extend(kept.values())
    for inner in graphs_of(graph):
        for value in inner.output:
            value.ClearField("type")


def _declared(value: ValueInfoProto) -> Declared:
    if value.type.WhichOneof("value") != "tensor_type":
        return Declared(0, None)
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return Declared(declared.elem_type, None)
    sizes = (d.dim_value if d.HasField("dim_value") else -1 for d in declared.shape.dim)
    return Declared(declared.elem_type, tuple(None if size < 0 else size for size in sizes))


def _take_tensors(graph: GraphProto, source: SourceModel, folder: Path, label: str) -> None:
    for tensor in graph.initializer:
        _take(tensor, tensor.name, source, folder, label)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                named = node.op_type == "Constant" and node.domain == ""
                _take(attribute.t, node.output[0] if named else "", source, folder, label)


def _take(tensor: TensorProto, name: str, source: SourceModel, folder: Path, label: str) -> None:
    """Check a tensor; move a large one out of the message."""
    what = f"tensor '{name or tensor.name}'"
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError as error:
        raise damaged(label, f"{what} has the unknown dtype {tensor.data_type}") from error
    if any(d < 0 for d in tensor.dims):
        raise damaged(label, f"{what} has a negative size")
    if dtype == ir.DataType.UNDEFINED:
        raise damaged(label, f"{what} has no dtype")
    if (
        math.prod(max(d, 1) for d in tensor.dims) * (128 if dtype == ir.DataType.STRING else dtype.bitwidth)
        > LARGEST_BITS
    ):
        shown = ", ".join(map(str, tensor.dims))
        raise damaged(label, f"{what} has the shape ({shown}), which no memory holds")
    count = math.prod(tensor.dims)
    if dtype == ir.DataType.STRING:
        if len(tensor.string_data) != count:
            raise damaged(label, f"{what} has {len(tensor.string_data)} elements, its shape needs {count}")
        return
    nbytes = math.ceil(count * dtype.bitwidth / 8)
    shape = tuple(tensor.dims)
    if tensor.data_location == TensorProto.EXTERNAL:
        data = _external(tensor, nbytes, folder, what, label)
        _move(tensor, name, tensor_of(data, dtype, shape), source)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
        if len(raw) != nbytes:
            raise damaged(label, f"{what} has {len(raw)} bytes, its shape and dtype need {nbytes}")
        if name and nbytes > INLINE_NBYTES:
            _move(tensor, name, tensor_of(np.frombuffer(raw, np.uint8), dtype, shape), source)
    else:
        _check_typed(tensor, dtype, count, what, label)
        if name and nbytes > INLINE_NBYTES and dtype.bitwidth >= 8:
            _move(tensor, name, ir.Tensor(onnx.numpy_helper.to_array(tensor), dtype=dtype), source)


def _check_typed(tensor: TensorProto, dtype: ir.DataType, count: int, what: str, label: str) -> None:
    fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    wanted = onnx.helper.tensor_dtype_to_field(dtype.value)
    for name in fields:
        if name != wanted and len(getattr(tensor, name)):
            raise damaged(label, f"{what} of {dtype} has its elements in '{name}' instead of '{wanted}'")
    held = len(getattr(tensor, wanted))
    per_element = 2 if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128) else 1
    expected = count * per_element if dtype.bitwidth >= 8 else math.ceil(count * dtype.bitwidth / 8)
    # Some writers pack sub-byte types one element an entry.
    if held not in (expected, count * per_element):
        raise damaged(label, f"{what} has {held} elements, its shape needs {expected}")


def _move(tensor: TensorProto, name: str, moved: ir.TensorProtocol, source: SourceModel) -> None:
    if not name:
        tensor.CopyFrom(ir.to_proto(moved))
        return
    moved.name = name
    source.tensors[name] = moved
    empty = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    tensor.CopyFrom(empty)


def _external(tensor: TensorProto, nbytes: int, folder: Path, what: str, label: str) -> np.ndarray[Any, Any]:
    try:
        return external_bytes({e.key: e.value for e in tensor.external_data}, nbytes, folder, what)
    except InvalidModel as error:
        raise error.at(Loc(label)) from None
