"""Weights by digest: graph files hold no large tensors, they refer to blobs of the store."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import onnx
import onnx_ir as ir

from cuvil_build.errors import InvalidGraph

if TYPE_CHECKING:
    from typing_extensions import Buffer

INLINE_NBYTES = 1024
"""Tensors up to this size stay in the graph file."""
SCHEME = "sha256:"


class Blobs(Protocol):
    """Bytes by digest; the store, or a stand-in of tests."""

    def put(self, data: Buffer) -> str: ...

    def open(self, digest: str) -> memoryview: ...


class BlobTensor(ir.LazyTensor):
    """A tensor whose bytes lie in the store, mapped at first use."""

    __slots__ = ("digest",)

    def __init__(
        self, digest: str, dtype: ir.DataType, shape: ir.Shape, blobs: Blobs, name: str | None
    ) -> None:
        super().__init__(
            lambda: _mapped(blobs.open(digest), dtype, shape), dtype=dtype, shape=shape, cache=True, name=name
        )
        self.digest = digest


def _mapped(data: memoryview, dtype: ir.DataType, shape: ir.Shape) -> ir.TensorProtocol:
    if dtype.bitwidth < 8:
        return ir.PackedTensor(np.frombuffer(data, np.uint8), dtype, shape=shape)
    return ir.Tensor(np.frombuffer(data, dtype.numpy()).reshape(shape.numpy()), dtype=dtype)


def save_graph(model: ir.Model, path: Path, blobs: Blobs) -> list[str]:
    """Write the graph file; large initializers go to the store. Returns the digests that it refers to."""
    found: dict[str, str] = {}
    for graph in _graphs_with_weights(model):
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if tensor is not None and tensor.nbytes > INLINE_NBYTES and tensor.dtype != ir.DataType.STRING:
                found[name] = _put(tensor, blobs)
    with _referring(model, found):
        proto = ir.to_proto(model)
    path.write_bytes(proto.SerializeToString(deterministic=True))
    return sorted(set(found.values()))


def load_graph(path: Path, blobs: Blobs) -> ir.Model:
    """Read a graph file; weights are mapped when they are asked for."""
    proto = onnx.ModelProto()
    proto.ParseFromString(path.read_bytes())
    model: ir.Model = ir.from_proto(proto)
    for graph in _graphs_with_weights(model):
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = _referred(tensor, blobs)
    return model


def digest_of(tensor: ir.TensorProtocol) -> str | None:
    """The digest of a tensor that lies in the store already."""
    return tensor.digest if isinstance(tensor, BlobTensor) else None


def _put(tensor: ir.TensorProtocol, blobs: Blobs) -> str:
    if isinstance(tensor, BlobTensor):
        blobs.open(tensor.digest)  # the store notes which blobs an artifact depends on
        return tensor.digest
    if tensor.dtype.bitwidth < 8:
        return blobs.put(tensor.tobytes())
    array = np.ascontiguousarray(tensor.numpy())
    return blobs.put(array.reshape(-1).view(np.uint8).data)


def _referred(tensor: ir.ExternalTensor, blobs: Blobs) -> BlobTensor:
    location = str(tensor.location)
    if not location.startswith(SCHEME):
        raise InvalidGraph(f"initializer '{tensor.name}' lies in '{location}', which is no digest")
    shape = tensor.shape
    nbytes = math.ceil(math.prod(shape.numpy()) * tensor.dtype.bitwidth / 8)
    if tensor.length != nbytes:
        raise InvalidGraph(f"initializer '{tensor.name}' has {tensor.length} bytes, its shape needs {nbytes}")
    return BlobTensor(
        location.removeprefix(SCHEME), tensor.dtype, ir.Shape(shape.numpy()), blobs, tensor.name
    )


def _graphs_with_weights(model: ir.Model) -> Iterator[ir.Graph]:
    yield model.graph
    yield from model.graph.subgraphs()


@contextmanager
def _referring(model: ir.Model, digests: dict[str, str]) -> Iterator[None]:
    """While serializing, large initializers are references."""
    kept: list[tuple[ir.Value, ir.TensorProtocol]] = []
    try:
        for graph in _graphs_with_weights(model):
            for name, value in graph.initializers.items():
                tensor = value.const_value
                if name not in digests or tensor is None:
                    continue
                kept.append((value, tensor))
                value.const_value = ir.ExternalTensor(
                    SCHEME + digests[name],
                    0,
                    tensor.nbytes,
                    tensor.dtype,
                    shape=ir.Shape(tensor.shape.numpy()),
                    name=name,
                )
        yield
    finally:
        for value, tensor in kept:
            value.const_value = tensor
