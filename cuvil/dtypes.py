"""The dtypes of modules as numpy arrays: what numpy has, what ml_dtypes adds, and bits where neither does."""

from __future__ import annotations

import importlib
import importlib.util
import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class PortType:
    """How values of one input or output are given and taken."""

    name: str
    code: int
    """DLPack's."""
    bits: int
    array: np.dtype[Any]
    """Of the arrays of the caller."""

    @property
    def is_packed(self) -> bool:
        """Whether elements share bytes in the module's memory; arrays have one element a byte."""
        return self.bits < 8

    @property
    def memory(self) -> np.dtype[Any]:
        """Of the module's memory."""
        return np.dtype(np.uint8) if self.is_packed else self.array

    def memory_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (-(-math.prod(shape) * self.bits // 8),) if self.is_packed else shape

    def pack(self, array: np.ndarray) -> np.ndarray:
        """The bytes that the module reads: the first element in the lowest bits."""
        each = 8 // self.bits
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & np.uint8(2**self.bits - 1)
        rows = np.zeros((-(-flat.size // each), each), np.uint8)
        rows.reshape(-1)[: flat.size] = flat
        shifts = np.arange(each, dtype=np.uint8) * np.uint8(self.bits)
        return np.asarray(np.bitwise_or.reduce(rows << shifts, axis=1), np.uint8)

    def unpack(self, data: np.ndarray, count: int) -> np.ndarray:
        each = 8 // self.bits
        shifts = np.arange(each, dtype=np.uint8) * np.uint8(self.bits)
        values = (data.reshape(-1, 1) >> shifts & np.uint8(2**self.bits - 1)).reshape(-1)[:count]
        if self.name.startswith("int"):
            sign = np.uint8(2 ** (self.bits - 1))
            values = (values ^ sign) - sign
        return np.ascontiguousarray(values).view(self.array)


_PLAIN = {"i": 0, "u": 1, "f": 2, "b": 6}
_EXTRA = {
    "bfloat16": (4, 16, "bfloat16", "uint16"),
    "float4e2m1": (17, 4, "float4_e2m1fn", "uint8"),
    "float8e4m3fn": (10, 8, "float8_e4m3fn", "uint8"),
    "float8e4m3fnuz": (11, 8, "float8_e4m3fnuz", "uint8"),
    "float8e5m2": (12, 8, "float8_e5m2", "uint8"),
    "float8e5m2fnuz": (13, 8, "float8_e5m2fnuz", "uint8"),
    "float8e8m0": (14, 8, "float8_e8m0fnu", "uint8"),
    "int2": (0, 2, "int2", "int8"),
    "int4": (0, 4, "int4", "int8"),
    "uint2": (1, 2, "uint2", "uint8"),
    "uint4": (1, 4, "uint4", "uint8"),
}
"""Code, bits, the name in ml_dtypes, and the numpy dtype that stands for it where ml_dtypes isn't installed:
small integers as they are, floats as their bits."""


def port_type(name: str) -> PortType:
    if name not in _EXTRA:
        dtype = np.dtype(name)
        return PortType(name, _PLAIN[dtype.kind], dtype.itemsize * 8, dtype)
    code, bits, extra, plain = _EXTRA[name]
    return PortType(name, code, bits, _known(extra) or np.dtype(plain))


def _known(name: str) -> np.dtype[Any] | None:
    """Of ml_dtypes, which modules do without: it is there only for arrays of dtypes that numpy lacks."""
    if importlib.util.find_spec("ml_dtypes") is None:
        return None
    found = getattr(importlib.import_module("ml_dtypes"), name, None)
    return None if found is None else np.dtype(found)
