"""The weights file: a safetensors file of packed blocks, aligned so that the module can map it as it is.

The file is laid out as

    8 bytes   length of the header
    header    JSON, filled with spaces up to a multiple of 64 bytes (with the 8 above)
    `_id`     32 bytes: SHA-256 of header and blocks, which `open` compares with a constant
    blocks    each at a multiple of 64, with `_pad<n>` tensors between, since readers refuse gaps

A block is a `U8` tensor, because readers know no packed layout and no 4-bit type; its logical dtype, shape
and layout stand in `__metadata__`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cuvil_build.bundle.files import replacing
from cuvil_build.errors import Internal

ALIGNMENT = 64
ID_NBYTES = 32
_FORMAT = "cuvil-weights-1"
_RESERVED = re.compile(r"_id|_pad\d+|__metadata__|format")

Chunk = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class WeightBlob:
    """One packed block. Its bytes are asked for once, while the file is written, and need not fit memory."""

    name: str
    dtype: str
    """The logical dtype, `float32`, `int4`, …"""
    shape: tuple[int, ...]
    """The logical shape, before packing."""
    layout: str
    """How the bytes are ordered, for people and tools: `row-major`, `panels of 16 columns`, …"""
    nbytes: int
    chunks: Callable[[], Iterable[Chunk]]


@dataclass(frozen=True, slots=True)
class WeightsLayout:
    """Where everything will be, known before a byte of the blocks is."""

    header: bytes
    """The eight length bytes included."""
    offsets: tuple[int, ...]
    """Of each block, from the start of the file."""
    id_offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """What the module's text needs to know of the file."""

    nbytes: int
    id: bytes
    id_offset: int
    offsets: tuple[int, ...]


def lay_out_weights(blobs: Sequence[WeightBlob]) -> WeightsLayout:
    """Place the blocks, in the order given."""
    tensors: dict[str, tuple[int, int]] = {"_id": (0, ID_NBYTES)}
    metadata = {"format": _FORMAT}
    starts = []
    end = _pad(tensors, ID_NBYTES)
    for name, blob in zip(_stored_names(blobs), blobs):
        starts.append(end)
        tensors[name] = (end, end + blob.nbytes)
        metadata[name] = _json({"dtype": blob.dtype, "layout": blob.layout, "shape": list(blob.shape)})
        end = _pad(tensors, end + blob.nbytes)
    header = _header(tensors, metadata)
    base = len(header)
    return WeightsLayout(header, tuple(base + s for s in starts), base, base + end)


def write_weights(path: Path, blobs: Sequence[WeightBlob]) -> WeightsFile:
    """Write the file; nobody ever sees half of it."""
    layout = lay_out_weights(blobs)
    with replacing(path) as file:
        digest = _write(file, layout, blobs)
    return WeightsFile(layout.nbytes, digest, layout.id_offset, layout.offsets)


def _write(file: IO[bytes], layout: WeightsLayout, blobs: Sequence[WeightBlob]) -> bytes:
    """Each chunk is hashed by a thread while it is written and the next one is made; no more than two are in
    memory."""
    digest = hashlib.sha256(layout.header)
    with ThreadPoolExecutor(max_workers=1) as thread:
        _write_blocks(file, layout, blobs, lambda chunk: thread.submit(digest.update, chunk))
    file.seek(layout.id_offset)
    file.write(digest.digest())
    return digest.digest()


def _write_blocks(
    file: IO[bytes],
    layout: WeightsLayout,
    blobs: Sequence[WeightBlob],
    hashing: Callable[[Any], Future[None]],
) -> None:
    last: Future[None] | None = None
    file.write(layout.header)
    file.write(bytes(ID_NBYTES))
    position = layout.id_offset + ID_NBYTES
    for blob, offset in zip(blobs, layout.offsets):
        file.write(bytes(offset - position))
        position = offset
        for chunk in blob.chunks():
            if last is not None:
                last.result()
            last = hashing(chunk)
            file.write(chunk)
            position += memoryview(chunk).nbytes
        if position != offset + blob.nbytes:
            raise Internal(
                f"block '{blob.name}' was to have {blob.nbytes} bytes and gave {position - offset}"
            )
    file.write(bytes(layout.nbytes - position))
    if last is not None:
        last.result()


def _pad(tensors: dict[str, tuple[int, int]], end: int) -> int:
    aligned = -(-end // ALIGNMENT) * ALIGNMENT
    if aligned != end:
        tensors[f"_pad{len(tensors)}"] = (end, aligned)
    return aligned


def _stored_names(blobs: Sequence[WeightBlob]) -> list[str]:
    """The blocks' names, moved out of the way of those that the format itself uses."""
    names = [f"{b.name}." if _RESERVED.fullmatch(b.name) else b.name for b in blobs]
    if len(set(names)) != len(names):
        twice = sorted(name for name in set(names) if names.count(name) > 1)
        raise Internal(f"several blocks of the weights file have the same name: {', '.join(twice)}")
    return names


def _header(tensors: dict[str, tuple[int, int]], metadata: dict[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": metadata}
    for name, (begin, end) in tensors.items():
        entries[name] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
    text = _json(entries).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":"))
