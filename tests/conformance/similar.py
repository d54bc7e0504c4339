"""Whether outputs are the expected ones, by the rules of onnx's own test runner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def difference(outputs: Sequence[np.ndarray], expected: Sequence[object], rtol: float, atol: float) -> str:
    """What differs, in words; empty where nothing does."""
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs, expected {len(expected)}"
    for index, (given, wanted) in enumerate(zip(outputs, expected)):
        text = _difference(given, np.asarray(wanted), rtol, atol)
        if text:
            return f"output {index}: {text}"
    return ""


def _difference(given: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> str:
    if given.shape != wanted.shape:
        return f"shape is {given.shape}, expected {wanted.shape}"
    if given.dtype != wanted.dtype:
        return f"dtype is {given.dtype}, expected {wanted.dtype}"
    if given.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)  # two units in the last place, as onnx allows
    if not _is_native(given.dtype):
        given, wanted = given.astype(np.float32), wanted.astype(np.float32)
    try:
        np.testing.assert_allclose(given, wanted, rtol=rtol, atol=atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:600]
    return ""


def _is_native(dtype: np.dtype) -> bool:
    """Whether numpy itself has it; the others are of ml_dtypes and know no float as a partner."""
    return dtype.kind in "biufc" and dtype.isbuiltin == 1
