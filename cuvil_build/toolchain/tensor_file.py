"""Tensor files: what the static driver of a module reads and writes (format: runtime/driver_linux.c)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cuvil_build.cuir.dtypes import DTYPES, dtype_of_array, pack_bits, unpack_bits
from cuvil_build.errors import Internal

_MAGIC = b"CUVL"
_ALIGNMENT = 64
_BY_CODE = {(d.dlpack_code, d.bits): d for d in DTYPES.values()}


def write_tensors(path: Path, arrays: Sequence[np.ndarray]) -> None:
    """Write the arrays in order, compact and little-endian."""
    with path.open("wb") as file:
        file.write(struct.pack("<4sI", _MAGIC, len(arrays)))
        for array in arrays:
            dtype = dtype_of_array(array)
            data = pack_bits(array if dtype.numpy_name else _little(array))
            file.write(struct.pack("<BBHI", dtype.dlpack_code, dtype.bits, array.ndim, 0))
            file.write(struct.pack(f"<{array.ndim}qQ", *array.shape, data.nbytes))
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(data.tobytes())
            file.write(bytes(-file.tell() % _ALIGNMENT))


def _little(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def read_tensors(path: Path) -> list[np.ndarray]:
    """Read a whole file; raises Internal for one that is damaged, since only drivers of ours write them."""
    data = path.read_bytes()
    try:
        return _parse(data)
    except (struct.error, KeyError, ValueError) as error:
        raise Internal(f"'{path.name}' is no tensor file, or is cut off: {error}") from error


def _parse(data: bytes) -> list[np.ndarray]:
    magic, count = struct.unpack_from("<4sI", data)
    if magic != _MAGIC:
        raise ValueError(f"starts with {magic!r}")
    at = 8
    arrays = []
    for _ in range(count):
        code, bits, rank, _ = struct.unpack_from("<BBHI", data, at)
        *dims, nbytes = struct.unpack_from(f"<{rank}qQ", data, at + 8)
        at += 8 + 8 * rank + 8
        at += -at % _ALIGNMENT
        dtype = _BY_CODE[code, bits]
        block = np.frombuffer(data[at : at + nbytes], np.uint8)
        values = unpack_bits(block, dtype, math.prod(dims)).reshape(dims)
        arrays.append(
            values if dtype.numpy_name else values.view(dtype.numpy.newbyteorder("<")).astype(dtype.numpy)
        )
        at += nbytes
        at += -at % _ALIGNMENT
    return arrays
