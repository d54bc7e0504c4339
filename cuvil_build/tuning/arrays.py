"""Random operands of a kernel, as its memory holds them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cuvil_build.codegen.kernels import EmittedKernel
from cuvil_build.cuir.dtypes import DType, pack_bits
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.packing import Packing, pack
from cuvil_build.tuning.bench_process import Bytes

Sizes = Mapping[str, int]
_TOLERANCES = {8: 1e-10, 4: 2e-5, 2: 2e-2, 1: 2e-1}
"""By bytes of a float, of the largest magnitude: sums of another order round in another way."""


class Operands:
    """The same numbers for every schedule of a kernel; packed as each of them wants."""

    def __init__(self, kernel: EmittedKernel, sizes: Sequence[Sizes]) -> None:
        self._shapes = {b.name: largest_shape(b, sizes) for b in kernel.buffers}
        self._known: dict[tuple[str, Packing | None], Bytes] = {}

    def memory(self, buffer: Buffer, packing: Packing | None) -> Bytes:
        key = buffer.name, packing
        if key not in self._known:
            array = random_array(buffer.dtype, self._shapes[buffer.name], buffer.name)
            # filters are as random after their transform
            packing = replace(packing, filter_tile=()) if packing else None
            flat = pack(array, packing) if packing else array.transpose(buffer.order).reshape(-1)
            flat = pack_bits(flat) if buffer.dtype.is_packed and not packing else flat
            self._known[key] = np.ascontiguousarray(flat).view(np.uint8)
        return self._known[key]


def largest_shape(buffer: Buffer, sizes: Sequence[Sizes]) -> tuple[int, ...]:
    """Of all sizes: smaller ones use the start of the memory."""
    return tuple(
        max(d.evaluate({name: s.get(name, 1) for name in d.symbols()}) for s in sizes) for d in buffer.shape
    )


def random_array(dtype: DType, shape: tuple[int, ...], name: str) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype.is_float:
        return rng.standard_normal(shape, np.float32).astype(dtype.numpy)
    return rng.integers(0, 2, shape).astype(dtype.numpy)  # indices that are in every table


def is_close(have: Bytes, want: Bytes, dtype: DType) -> bool:
    """Integers are equal; floats as near as another order of sums keeps them."""
    if not dtype.is_float or dtype.is_packed:
        return bool((have == want).all())
    a, b = (x.view(dtype.numpy).astype(np.float64) for x in (have, want))
    special = ~np.isfinite(a) | ~np.isfinite(b)
    if not np.array_equal(a[special], b[special], equal_nan=True):
        return False
    a, b = a[~special], b[~special]
    largest = float(np.abs(b).max(initial=1e-30))
    return bool(np.abs(a - b).max(initial=0.0) <= _TOLERANCES.get(dtype.nbytes, 1e-1) * largest)
