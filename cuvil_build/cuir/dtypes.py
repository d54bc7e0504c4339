"""The dtypes of CU-IR and what is known of each: size, numpy type, C type, kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """One element type, named as ONNX and numpy name it (`float32`, `int64`, `bool`)."""

    name: str
    bits: int
    kind: str
    """`float`, `int`, `uint` or `bool`."""
    c_type: str
    dlpack_code: int
    """DLDataTypeCode of dlpack.h: 0 int, 1 uint, 2 float, 6 bool."""

    @property
    def nbytes(self) -> int:
        return self.bits // 8

    @property
    def numpy(self) -> np.dtype:
        return np.dtype(self.name)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    def __str__(self) -> str:
        return self.name


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("bool", 8, "bool", "uint8_t", 6),
        DType("float16", 16, "float", "_Float16", 2),
        DType("float32", 32, "float", "float", 2),
        DType("float64", 64, "float", "double", 2),
        DType("int16", 16, "int", "int16_t", 0),
        DType("int32", 32, "int", "int32_t", 0),
        DType("int64", 64, "int", "int64_t", 0),
        DType("int8", 8, "int", "int8_t", 0),
        DType("uint16", 16, "uint", "uint16_t", 1),
        DType("uint32", 32, "uint", "uint32_t", 1),
        DType("uint64", 64, "uint", "uint64_t", 1),
        DType("uint8", 8, "uint", "uint8_t", 1),
    )
}

FLOAT32 = DTYPES["float32"]
FLOAT64 = DTYPES["float64"]
INT64 = DTYPES["int64"]
BOOL = DTYPES["bool"]
