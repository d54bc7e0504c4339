"""Names of the files beside an ONNX file that hold its weights; standard library only, reads no weights.

Planning has to know them before any step runs, and may not load onnx for that.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

LENGTH_DELIMITED = 2
# Field numbers of onnx.proto on the way from a model to a tensor's external data.
_MODEL = {7: "graph", 25: "function"}
_GRAPH = {1: "node", 5: "tensor"}
_FUNCTION = {7: "node"}
_NODE = {5: "attribute"}
_ATTRIBUTE = {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"}
_TENSOR = {13: "entry"}
_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": _MODEL,
    "graph": _GRAPH,
    "function": _FUNCTION,
    "node": _NODE,
    "attribute": _ATTRIBUTE,
    "tensor": _TENSOR,
}
MAX_DEPTH = 64
MAX_NAME, MAX_PATH = 255, 3000
"""Of what any file system holds; import says what is wrong with others."""


def external_files(path: Path) -> list[str]:
    """Locations of external data as the file gives them, sorted; what is damaged gives none."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = set(_locations(content, 0, len(content), "model", 0))
            return sorted(location for location in found if _can_be_a_path(location))
    except (OSError, ValueError, UnicodeDecodeError):
        return []


def _can_be_a_path(location: str) -> bool:
    long = len(location) > MAX_PATH or any(len(os.fsencode(part)) > MAX_NAME for part in location.split("/"))
    return not long and "\0" not in location


def _locations(content: mmap.mmap, begin: int, end: int, kind: str, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if kind == "entry":
        fields = {
            number: content[start:stop].decode() for number, start, stop in _fields(content, begin, end)
        }
        if fields.get(1) == "location":
            yield fields.get(2, "")
        return
    wanted = _FIELDS[kind]
    for number, start, stop in _fields(content, begin, end):
        if number in wanted:
            yield from _locations(content, start, stop, wanted[number], depth + 1)


def _fields(content: mmap.mmap, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, first byte, last byte + 1) of the length-delimited fields of one message."""
    at = begin
    while at < end:
        key, at = _varint(content, at, end)
        wire = key & 7
        if wire == LENGTH_DELIMITED:
            size, at = _varint(content, at, end)
            if at + size > end:
                raise ValueError("truncated")
            yield key >> 3, at, at + size
            at += size
        elif wire == 0:
            _, at = _varint(content, at, end)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError("not a protobuf message")


def _varint(content: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("truncated")
