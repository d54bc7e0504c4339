"""Numbers as C constant expressions."""

from __future__ import annotations

import math

import numpy as np

from cuvil_build.cuir.dtypes import DType


def c_literal(value: int | float | bool, dtype: DType) -> str:
    """A number of a dtype as a C constant expression."""
    if dtype.kind == "bool":
        return "1" if value else "0"
    if dtype.is_stored_only:
        return hex(int(np.asarray(value).astype(dtype.numpy).view(dtype.bits_dtype.numpy)))
    if dtype.is_float:
        return _float_literal(float(value), dtype)
    number = int(value)
    if dtype.bits == 64:
        if dtype.kind == "uint":
            return f"UINT64_C({number})"
        return (
            "INT64_MIN"
            if number == -(2**63)
            else f"INT64_C({number})"
            if number >= 0
            else f"(-INT64_C({-number}))"
        )
    if dtype.name == "int32" and number == -(2**31):
        return "INT32_MIN"
    return f"{number}u" if dtype.name == "uint32" else str(number) if number >= 0 else f"({number})"


def _float_literal(value: float, dtype: DType) -> str:
    suffix = "" if dtype.bits == 64 else "f"
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"__builtin_inf{suffix}()" if value > 0 else f"(-__builtin_inf{suffix}())"
    with np.errstate(over="ignore"):
        rounded = np.float64(value) if dtype.bits == 64 else np.float32(value)
    if np.isinf(rounded):
        return _float_literal(float(rounded), dtype)
    text = str(rounded)
    if not any(c in text for c in ".e"):
        text += ".0"
    text += suffix
    return f"({text})" if text.startswith("-") else text
