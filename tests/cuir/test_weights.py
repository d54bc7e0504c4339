"""Graph files refer to weights by digest; equal weights are stored once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.weights import BlobTensor, digest_of, load_graph, save_graph
from cuvil_build.errors import InvalidGraph


class MemoryBlobs:
    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.opened: set[str] = set()

    def put(self, data: object) -> str:
        content = bytes(memoryview(data).cast("B"))  # type: ignore[arg-type]
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return digest

    def open(self, digest: str) -> memoryview:
        self.opened.add(digest)
        return memoryview(self.blobs[digest])


def weighted_model() -> ir.Model:
    model = parse_model(
        """agraph (float[N,600] x) => (float[N,600] y)
        <float[1] a = {1}, float[1] b = {1}, float[1] small = {2}>
        { s = Add(x, a)  t = Mul(s, b)  y = Sub(t, small) }"""
    )
    for name in ("a", "b"):
        array = np.arange(600, dtype=np.float32)
        value = model.graph.initializers[name]
        value.const_value, value.shape = ir.Tensor(array, name=name), ir.Shape([600])
    return model


def test_equal_weights_are_stored_once_and_small_ones_inline(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    digests = save_graph(weighted_model(), tmp_path / "g.onnx", blobs)
    assert digests == list(blobs.blobs) and len(digests) == 1
    assert (tmp_path / "g.onnx").stat().st_size < 1500


def test_a_loaded_graph_has_the_same_numbers_and_maps_them_late(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    save_graph(weighted_model(), tmp_path / "g.onnx", blobs)
    model = load_graph(tmp_path / "g.onnx", blobs)
    tensor = model.graph.initializers["a"].const_value
    assert isinstance(tensor, BlobTensor) and not blobs.opened
    np.testing.assert_array_equal(tensor.numpy(), np.arange(600, dtype=np.float32))
    assert digest_of(tensor) == next(iter(blobs.blobs))
    assert model.graph.initializers["small"].const_value.numpy() == 2


def test_saving_again_gives_the_same_bytes_and_notes_the_blobs(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    save_graph(weighted_model(), tmp_path / "one.onnx", blobs)
    model = load_graph(tmp_path / "one.onnx", blobs)
    save_graph(model, tmp_path / "two.onnx", blobs)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()
    assert blobs.opened == set(blobs.blobs)
    assert isinstance(model.graph.initializers["a"].const_value, BlobTensor)


def test_a_reference_that_is_no_digest_is_refused(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    save_graph(weighted_model(), tmp_path / "g.onnx", blobs)
    content = (tmp_path / "g.onnx").read_bytes()
    (tmp_path / "bad.onnx").write_bytes(content.replace(b"sha256:", b"../../:"))
    with pytest.raises(InvalidGraph, match="no digest"):
        load_graph(tmp_path / "bad.onnx", blobs)
