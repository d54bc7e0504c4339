"""The dtypes of CU-IR and what is known of each: size, numpy type, C type, kind.

Kernels compute in `bool`, `float32`, `float64` and the integers of 8 to 64 bits. All other dtypes are only
stored: a kernel converts what it loads to the dtype's carrier, and what it stores back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from cuvil_build.cuir.int_expr import IntExpr, ceil_divide


@dataclass(frozen=True, slots=True)
class DType:
    """One element type, named as ONNX names it, and numpy where it knows it (`float32`, `int64`, `bool`)."""

    name: str
    bits: int
    kind: str
    """`float`, `int`, `uint` or `bool`."""
    c_type: str
    """Of one element in memory; of those that are stored only, their bits."""
    dlpack_code: int
    """DLDataTypeCode of dlpack.h: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 10 to 17 smaller floats."""
    carrier_name: str = ""
    numpy_name: str = ""
    """Of ml_dtypes, where numpy itself has no such dtype under this name."""

    @property
    def nbytes(self) -> int:
        """Of one element by itself: several of less than 8 bits share a byte, see `bytes_of`."""
        return -(-self.bits // 8)

    @property
    def is_packed(self) -> bool:
        """Whether several elements share a byte, the first in its lowest bits."""
        return self.bits < 8

    def bytes_of(self, count: IntExpr) -> IntExpr:
        """Of that many elements in memory."""
        return ceil_divide(count, 8 // self.bits) if self.is_packed else count * self.nbytes

    @property
    def is_stored_only(self) -> bool:
        return bool(self.carrier_name)

    @property
    def carrier(self) -> DType:
        """The dtype that kernels compute in; it holds every value of this one."""
        return DTYPES[self.carrier_name] if self.carrier_name else self

    @property
    def bits_dtype(self) -> DType:
        """The unsigned integers of the same size in memory."""
        return DTYPES[f"uint{self.nbytes * 8}"]

    @property
    def numpy(self) -> np.dtype:
        if not self.numpy_name:
            return np.dtype(self.name)
        found: np.dtype = np.dtype(getattr(ml_dtypes, self.numpy_name))
        return found

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    def __str__(self) -> str:
        return self.name


def _float8(name: str, code: int, numpy_name: str) -> DType:
    return DType(name, 8, "float", "uint8_t", code, "float32", numpy_name)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("bfloat16", 16, "float", "uint16_t", 4, "float32", "bfloat16"),
        DType("bool", 8, "bool", "uint8_t", 6),
        DType("float16", 16, "float", "uint16_t", 2, "float32"),
        DType("float32", 32, "float", "float", 2),
        DType("float4e2m1", 4, "float", "uint8_t", 17, "float32", "float4_e2m1fn"),
        DType("float64", 64, "float", "double", 2),
        _float8("float8e4m3fn", 10, "float8_e4m3fn"),
        _float8("float8e4m3fnuz", 11, "float8_e4m3fnuz"),
        _float8("float8e5m2", 12, "float8_e5m2"),
        _float8("float8e5m2fnuz", 13, "float8_e5m2fnuz"),
        _float8("float8e8m0", 14, "float8_e8m0fnu"),
        DType("int16", 16, "int", "int16_t", 0),
        DType("int2", 2, "int", "uint8_t", 0, "int8", "int2"),
        DType("int32", 32, "int", "int32_t", 0),
        DType("int4", 4, "int", "uint8_t", 0, "int8", "int4"),
        DType("int64", 64, "int", "int64_t", 0),
        DType("int8", 8, "int", "int8_t", 0),
        DType("uint16", 16, "uint", "uint16_t", 1),
        DType("uint2", 2, "uint", "uint8_t", 1, "uint8", "uint2"),
        DType("uint32", 32, "uint", "uint32_t", 1),
        DType("uint4", 4, "uint", "uint8_t", 1, "uint8", "uint4"),
        DType("uint64", 64, "uint", "uint64_t", 1),
        DType("uint8", 8, "uint", "uint8_t", 1),
    )
}

FLOAT32 = DTYPES["float32"]
FLOAT64 = DTYPES["float64"]
INT32 = DTYPES["int32"]
INT64 = DTYPES["int64"]
UINT8 = DTYPES["uint8"]
UINT32 = DTYPES["uint32"]
BOOL = DTYPES["bool"]

_BY_NUMPY_NAME = {d.numpy_name or d.name: d for d in DTYPES.values()}


def dtype_of_array(array: np.ndarray) -> DType:
    """Of numpy's and ml_dtypes' arrays."""
    return _BY_NUMPY_NAME[array.dtype.name]


def plain(array: np.ndarray) -> tuple[np.ndarray, str]:
    """An array that any library stores, and what it stands for: empty where it is itself."""
    dtype = _BY_NUMPY_NAME.get(array.dtype.name)
    if dtype is None or not dtype.numpy_name:
        return np.asarray(array, order="C"), ""
    return pack_bits(array), f"{dtype.name} {','.join(map(str, array.shape))}"


def from_plain(array: np.ndarray, text: str) -> np.ndarray:
    """The array that `plain` was given."""
    if not text:
        return array
    name, dims = text.split(" ")
    shape = [int(d) for d in dims.split(",") if d]
    return unpack_bits(array, DTYPES[name], math.prod(shape)).reshape(shape)


def pack_bits(array: np.ndarray) -> np.ndarray:
    """The bytes of an array as they lie in memory: elements of less than 8 bits share bytes."""
    dtype = dtype_of_array(array)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if not dtype.is_packed:
        return flat
    each = 8 // dtype.bits
    rows = np.zeros((-(-flat.size // each), each), np.uint8)
    rows.reshape(-1)[: flat.size] = flat & (2**dtype.bits - 1)
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(dtype.bits)
    return np.asarray(np.bitwise_or.reduce(rows << shifts, axis=1), np.uint8)


def unpack_bits(data: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """The elements, one-dimensional, from bytes as `pack_bits` gives them."""
    if not dtype.is_packed:
        return data.view(np.uint8)[: count * dtype.nbytes].view(dtype.numpy)
    each = 8 // dtype.bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(dtype.bits)
    values = (data.reshape(-1, 1) >> shifts & np.uint8(2**dtype.bits - 1)).reshape(-1)[:count]
    return np.asarray(values.astype(np.uint8).view(dtype.numpy))
