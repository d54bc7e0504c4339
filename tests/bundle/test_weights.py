"""The weights file is a true safetensors file, aligned, streamed and reproducible."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from cuvil_build.bundle.weights import WeightBlob, lay_out_weights, write_weights
from cuvil_build.errors import Internal


def blob(name: str, data: bytes, dtype: str = "float32", shape: tuple[int, ...] = ()) -> WeightBlob:
    return WeightBlob(name, dtype, shape or (len(data) // 4,), "row-major", len(data), lambda: [data])


def bytes_of(count: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8).tobytes()


def test_safetensors_reads_blocks_and_metadata(tmp_path: Path) -> None:
    blobs = [
        blob("conv/weight", bytes_of(100)),
        blob("gelü", bytes_of(64, 1)),
        blob("nothing", b"", "int4", (0, 3)),
        blob("tail", bytes_of(7, 2), "uint8", (7,)),
    ]
    written = write_weights(tmp_path / "weights.safetensors", blobs)
    raw = (tmp_path / "weights.safetensors").read_bytes()
    with safe_open(tmp_path / "weights.safetensors", "numpy") as reader:
        for b, offset in zip(blobs, written.offsets):
            expected = b"".join(bytes(c) for c in b.chunks())
            assert reader.get_tensor(b.name).tobytes() == expected
            assert raw[offset : offset + b.nbytes] == expected
        assert reader.get_tensor("_id").tobytes() == written.id
        assert json.loads(reader.metadata()["nothing"]) == {
            "dtype": "int4",
            "layout": "row-major",
            "shape": [0, 3],
        }
    assert raw[written.id_offset : written.id_offset + 32] == written.id
    assert len(raw) == written.nbytes


def test_header_and_blocks_are_aligned(tmp_path: Path) -> None:
    blobs = [blob(f"w{n}", bytes_of(n)) for n in (1, 63, 64, 65, 200)]
    written = write_weights(tmp_path / "w", blobs)
    assert all(value % 64 == 0 for value in (*written.offsets, written.id_offset, written.nbytes))


def test_layout_is_known_before_the_blocks_are() -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError("asked for bytes")

    layout = lay_out_weights([WeightBlob("w", "float32", (3,), "row-major", 12, never)])
    assert layout.nbytes == layout.offsets[0] + 64


def test_id_depends_on_content_and_on_layout(tmp_path: Path) -> None:
    def id_of(*blobs: WeightBlob) -> bytes:
        return write_weights(tmp_path / "w", blobs).id

    data = bytes_of(256)
    ids = [
        id_of(blob("w", data)),
        id_of(blob("w", bytes_of(256, 1))),
        id_of(blob("w", data, "int32")),
        id_of(blob("a", data[:128]), blob("b", data[128:])),
        id_of(),
    ]
    assert len(set(ids)) == len(ids)


def test_same_blocks_give_the_same_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_weights(tmp_path / name / "w", [blob("b", bytes_of(70)), blob("a", bytes_of(3))])
    assert len({hashlib.sha256(p.read_bytes()).hexdigest() for p in tmp_path.glob("*/w")}) == 1


def test_blocks_are_streamed_in_chunks(tmp_path: Path) -> None:
    part = np.arange(1000, dtype=np.float32)
    stream = WeightBlob("w", "float32", (3, 1000), "row-major", 12000, lambda: (part.data for _ in range(3)))
    written = write_weights(tmp_path / "w", [stream])
    whole = blob("w", part.tobytes() * 3, shape=(3, 1000))
    assert written == write_weights(tmp_path / "w2", [whole])


def test_names_of_the_format_itself_are_free_for_blocks(tmp_path: Path) -> None:
    names = ["_id", "_pad1", "__metadata__", "format"]
    write_weights(tmp_path / "w", [blob(name, name.encode()) for name in names])
    with safe_open(tmp_path / "w", "numpy") as reader:
        assert [reader.get_tensor(f"{name}.").tobytes() for name in names] == [n.encode() for n in names]


def test_wrong_size_leaves_nothing_behind(tmp_path: Path) -> None:
    lying = WeightBlob("w", "float32", (4,), "row-major", 16, lambda: [b"short"])
    with pytest.raises(Internal, match="16 bytes and gave 5"):
        write_weights(tmp_path / "w", [lying])
    assert not list(tmp_path.iterdir())


def test_equal_names_are_refused() -> None:
    with pytest.raises(Internal, match="same name: w"):
        lay_out_weights([blob("w", b"1"), blob("w", b"2")])
