"""Cast and CastLike: conversion between dtypes."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import DTYPES, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import UnsupportedDtype
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.contents import Contents, elementwise, is_true, truth
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY

CODES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}
"""ONNX's numbers of the dtypes."""


def dtype_of_code(code: int) -> DType:
    if code not in CODES:
        raise UnsupportedDtype(f"ONNX dtype number {code} is not supported")
    return DTYPES[CODES[code]]


def infer(ctx: InferContext, x: Known, *, to: int, saturate: int = 1, round_mode: str = "up") -> Known:
    return Known(dtype_of_code(to), x.shape)


def lower(build: NestBuilder, x: View, *, to: int, saturate: int = 1, round_mode: str = "up") -> View:
    return build.cast(x, dtype_of_code(to))


def evaluate(
    ctx: InferContext, x: Contents, *, to: int, saturate: int = 1, round_mode: str = "up"
) -> Contents | None:
    """Between integers; the driver asks only for results that are no floats."""
    return _to_bool(ctx, x) if dtype_of_code(to).kind == "bool" else x


def _is_nonzero(ctx: InferContext, x: IntExpr) -> IntExpr | None:
    known = is_true(x)
    if known is None and ctx.bounds(x)[0] > 0:
        known = True
    return truth(known)


_to_bool = elementwise(_is_nonzero)


def infer_like(
    ctx: InferContext, x: Known, target: Known, *, saturate: int = 1, round_mode: str = "up"
) -> Known:
    return Known(target.dtype, x.shape)


def lower_like(
    build: NestBuilder, x: View, target: View, *, saturate: int = 1, round_mode: str = "up"
) -> View:
    return build.cast(x, target.dtype)


OPS = (
    Operator("Cast", infer, lower, dtypes=ANY, evaluate=evaluate),
    Operator("CastLike", infer_like, lower_like, dtypes=ANY),
)
