"""Run a WebAssembly module in wasmtime: `run_wasmtime FOLDER FEEDS OUTPUTS COUNT`.

Linear memory is used as the JavaScript loader uses it (runtime/module.js.jinja says how).
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import wasmtime

from cuvil_build.cuir.dtypes import DTYPES, pack_bits, unpack_bits
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.toolchain.exchange import Arrays, read_cases, write_cases
from cuvil_build.toolchain.process import REFUSED

_ALIGNMENT = 64
_PAGE = 65536
_DLTENSOR = struct.Struct("<I ii i BBH I I 4x Q")
"""data, device, ndim, dtype, shape, strides, byte_offset, on wasm32."""
_CPU = 1


class Refused(Exception):
    """The module returned an error."""


class WasmModule:
    def __init__(self, folder: Path) -> None:
        self._manifest = json.loads((folder / "manifest.json").read_text())
        self._prefix = self._manifest["model"]
        engine = wasmtime.Engine()
        self._store = wasmtime.Store(engine)
        member = os.environ.get("CUVIL_CPU")
        name = self._manifest["libraries"][member] if member else self._manifest["library"]
        library = wasmtime.Module.from_file(engine, str(folder / name))
        self._exports = wasmtime.Instance(self._store, library, []).exports(self._store)
        self._memory = self._export("memory")
        named = self._manifest["weights"]
        weights = (folder / named).read_bytes() if named else b""
        start = _align(self._export("__heap_base").value(self._store))
        arena = _align(start + len(weights))
        arena_nbytes = self._call("memory_bytes", 0)
        self._exchange = self._capacity = 0
        self._grow(arena + arena_nbytes - self._memory.data_len(self._store))
        self._write(start, weights)
        self._reserve(4)
        given = start if weights else 0
        failed = self._call("open_memory", self._exchange, given, len(weights), arena, arena_nbytes, 0)
        (self._context,) = struct.unpack("<I", self._read(self._exchange, 4))
        self._check(failed)

    def run(self, feeds: Arrays) -> dict[str, np.ndarray]:
        inputs, outputs = self._manifest["inputs"], self._manifest["outputs"]
        arrays = [np.asarray(feeds[e["name"]], DTYPES[e["dtype"]].numpy, order="C") for e in inputs]
        blocks = [pack_bits(array) for array in arrays]
        shapes = [list(a.shape) for a in arrays] + [[0] * len(entry["shape"]) for entry in outputs]
        end = len(shapes) * _DLTENSOR.size
        shape_places, data_places = [], []
        for shape in shapes:
            shape_places.append(end)
            end += 8 * len(shape)
        for block in blocks:
            data_places.append(_align(end))
            end = data_places[-1] + block.nbytes
        self._reserve(end)
        base = self._exchange
        for place, block in zip(data_places, blocks):
            self._write(base + place, block.tobytes())
        # the module lends memory for the outputs and fills their shapes
        addresses = [base + place for place in data_places] + [0] * len(outputs)
        for index, entry in enumerate([*inputs, *outputs]):
            shape, place = shapes[index], base + shape_places[index]
            dtype = DTYPES[entry["dtype"]]
            self._write(place, struct.pack(f"<{len(shape)}q", *shape))
            fields = (addresses[index], _CPU, 0, len(shape), dtype.dlpack_code, dtype.bits, 1, place, 0, 0)
            self._write(base + index * _DLTENSOR.size, _DLTENSOR.pack(*fields))
        first = base + len(inputs) * _DLTENSOR.size
        self._check(self._call("run", self._context, base, first))
        return {
            entry["name"]: self._taken(first + index * _DLTENSOR.size, entry["dtype"])
            for index, entry in enumerate(outputs)
        }

    def _taken(self, tensor: int, dtype: str) -> np.ndarray:
        data, _, _, rank, _, _, _, place, _, offset = _DLTENSOR.unpack(self._read(tensor, _DLTENSOR.size))
        shape = struct.unpack(f"<{rank}q", self._read(place, 8 * rank))
        count = math.prod(shape)
        nbytes = DTYPES[dtype].bytes_of(IntExpr.of(count)).value
        block = np.frombuffer(self._read(data + offset, nbytes), np.uint8)
        return unpack_bits(block, DTYPES[dtype], count).reshape(shape)

    def _export(self, name: str) -> Any:
        return self._exports[name]

    def _call(self, name: str, *values: int) -> int:
        function = self._export(f"{self._prefix}_{name}")
        # wasmtime's i32 are signed, addresses are not
        answer = function(self._store, *(ctypes.c_int32(value).value for value in values))
        return int(answer) & 0xFFFFFFFF

    def _check(self, code: int) -> None:
        if not code:
            return
        start = self._call("error", self._context)
        text = bytes(self._memory.read(self._store, start)).split(b"\0", 1)[0].decode()
        raise Refused(f"{self._prefix}: {text or f'error {code}'}")

    def _reserve(self, nbytes: int) -> None:
        if nbytes <= self._capacity:
            return
        start = self._memory.data_len(self._store)
        self._grow(max(nbytes, 2 * self._capacity))
        self._exchange = start
        self._capacity = self._memory.data_len(self._store) - start

    def _grow(self, nbytes: int) -> None:
        self._memory.grow(self._store, -(-max(nbytes, 0) // _PAGE))

    def _write(self, start: int, data: bytes) -> None:
        self._memory.write(self._store, data, start)

    def _read(self, start: int, nbytes: int) -> bytes:
        return bytes(self._memory.read(self._store, start, start + nbytes))


def _align(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def main(folder: str, feeds: str, outputs: str, count: str) -> int:
    cases = read_cases(Path(feeds), int(count))
    try:
        module = WasmModule(Path(folder))
        results = [module.run(case) for case in cases]
    except Refused as error:
        print(error, file=sys.stderr)
        return REFUSED
    write_cases(Path(outputs), results)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
