"""Cast and CastLike: conversion between dtypes."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import BOOL, DTYPES, FLOAT32, UINT8, UINT32, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import UnsupportedDtype
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.ops import scalar
from cuvil_build.ops.contents import Contents, elementwise, is_true, truth
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call
from cuvil_build.ops.shapes import ANY, require_attribute

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
    16: "bfloat16",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}
"""ONNX's numbers of the dtypes."""
LARGEST = {"float8e4m3fn": 448.0, "float8e4m3fnuz": 240.0, "float8e5m2": 57344.0, "float8e5m2fnuz": 57344.0}
"""What `saturate` keeps numbers to."""


def dtype_of_code(code: int) -> DType:
    if code not in CODES:
        raise UnsupportedDtype(f"ONNX dtype number {code} is not supported")
    return DTYPES[CODES[code]]


def infer(ctx: InferContext, x: Known, *, to: int, saturate: int = 1, round_mode: str = "up") -> Known:
    return Known(dtype_of_code(to), x.shape)


def lower(build: NestBuilder, x: View, *, to: int, saturate: int = 1, round_mode: str = "up") -> View:
    return convert(build, x, dtype_of_code(to), bool(saturate), round_mode)


def convert(build: NestBuilder, x: View, dtype: DType, saturate: bool, round_mode: str) -> View:
    if dtype.name == "float8e8m0":
        return build.map(lambda e: _power_of_two(scalar.cast(e, FLOAT32), dtype, saturate, round_mode), x)
    if dtype.name in LARGEST and saturate:
        limit = LARGEST[dtype.name]
        wide = x if x.dtype.is_float else build.cast(x, FLOAT32)
        return build.cast(build.map(lambda e: scalar.maximum(scalar.minimum(e, limit), -limit), wide), dtype)
    return build.cast(x, dtype)


def _power_of_two(x: Expr, dtype: DType, saturate: bool, round_mode: str) -> Expr:
    """The exponent, one more where the fraction asks for it; the sign is left aside."""
    bits = scalar.bitcast(x, UINT32)
    exponent = call("bitand", call("shr", bits, 23), 0xFF)
    fraction = call("bitand", bits, 0x7FFFFF)
    up = _goes_up(exponent, fraction, round_mode)
    if saturate:
        up = call("and", up, call("ne", exponent, 0xFE))
    up = call("and", up, call("ne", exponent, 0xFF))
    code = scalar.cast(scalar.select(up, scalar.add(exponent, 1), exponent), UINT8)
    return scalar.cast(scalar.bitcast(code, dtype), FLOAT32)


def _goes_up(exponent: Expr, fraction: Expr, round_mode: str) -> Expr:
    if round_mode == "up":
        return call("gt", fraction, 0)
    if round_mode == "down":
        return Const(False, BOOL)
    require_attribute(round_mode == "nearest", f"round_mode='{round_mode}'", "known: up, down, nearest")
    tie = call("and", call("eq", fraction, 0x400000), call("gt", exponent, 0))
    return call("or", call("gt", fraction, 0x400000), tie)


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
    return convert(build, x, build.result_dtypes[0], bool(saturate), round_mode)


OPS = (
    Operator("Cast", infer, lower, dtypes=ANY, evaluate=evaluate),
    Operator("CastLike", infer_like, lower_like, dtypes=ANY),
)
