"""Random operators, by a counter: element n of a node is a hash of the node's key and n.

The key is the attribute `seed`, or the node's name where it has none. A module keeps no state between runs:
every run gives the same numbers, and so does every build.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from cuvil_build.cuir.dtypes import DTYPES, FLOAT32, FLOAT64, DType
from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.errors import ShapeMismatch, UnsupportedDtype
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import integer, reindex
from cuvil_build.ops.argmax import first_extreme
from cuvil_build.ops.cast import dtype_of_code
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, cast, log, mul, select, sqrt
from cuvil_build.ops.shapes import ANY, FLOATS

UINT64 = DTYPES["uint64"]
GOLDEN = 0x9E3779B97F4A7C15
"""Steps of splitmix64, whose finaliser this is: https://prng.di.unimi.it/splitmix64.c."""
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
Draw = Callable[[Expr], Expr]
"""From a counter (uint64) to a number."""


def key_of(node: str, seed: float | None) -> int:
    data = node.encode() if seed is None else struct.pack("<d", seed)
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little")


def bits(key: int, counter: Expr) -> Expr:
    """64 bits for a counter."""
    z = add(mul(counter, GOLDEN), Const((key + GOLDEN) % 2**64, UINT64))
    for shift, factor in MIX:
        z = mul(call("bitxor", z, call("shr", z, shift)), factor)
    return call("bitxor", z, call("shr", z, 31))


def unit(key: int, counter: Expr, dtype: DType) -> Expr:
    """From 0 to 1 without 1, in as many steps as the dtype's mantissa has."""
    digits = 53 if dtype == FLOAT64 else 24
    return mul(cast(call("shr", bits(key, counter), 64 - digits), dtype), 2.0**-digits)


def normal(key: int, counter: Expr, dtype: DType) -> Expr:
    """Box and Muller's transform of two numbers."""
    first, second = (unit(key, add(mul(counter, 2), n), dtype) for n in (0, 1))
    # 1 - u has no zero, of which there is no logarithm
    radius = sqrt(mul(log(add(call("neg", first), 1.0)), -2.0))
    return mul(radius, call("cos", mul(second, 2 * math.pi)))


def counted(build: NestBuilder, shape: Sequence[IntExpr], dtype: DType, draw: Draw) -> View:
    """A draw for each element of a tensor, numbered in row-major order."""

    def at(index: Index) -> Expr:
        flat = ZERO
        for entry, extent in zip(index, shape):
            flat = flat * extent + entry
        return draw(cast(integer(flat, DTYPES["int64"]), UINT64))

    return build.compute(shape, dtype, at)


def _floating(code: int | None, default: DType) -> DType:
    dtype = default if code is None else dtype_of_code(code)
    if not dtype.is_float:
        raise UnsupportedDtype(f"random numbers of {dtype}")
    return dtype


def _infer_made(ctx: InferContext, *, shape: list[int], dtype: int = 1, **attributes: Any) -> Known:
    if any(extent < 0 for extent in shape):
        raise ShapeMismatch(f"random numbers of shape {shape}")
    return Known(_floating(dtype, FLOAT32), tuple(map(IntExpr.of, shape)))


def _infer_like(ctx: InferContext, x: Known, *, dtype: int | None = None, **attributes: Any) -> Known:
    return Known(_floating(dtype, x.dtype if x.dtype.is_float else FLOAT32), x.shape)


def _lower_normal(
    build: NestBuilder,
    *operands: View,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    **attributes: Any,
) -> View:
    dtype, shape = build.results[0]
    key = key_of(build.node, seed)
    return counted(build, shape, dtype, lambda c: add(mul(normal(key, c, dtype), scale), mean))


def _lower_uniform(
    build: NestBuilder,
    *operands: View,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    **attributes: Any,
) -> View:
    dtype, shape = build.results[0]
    key = key_of(build.node, seed)
    return counted(build, shape, dtype, lambda c: add(mul(unit(key, c, dtype), high - low), low))


def _infer_bernoulli(
    ctx: InferContext, x: Known, *, dtype: int | None = None, seed: float | None = None
) -> Known:
    return Known(x.dtype if dtype is None else dtype_of_code(dtype), x.shape)


def _lower_bernoulli(
    build: NestBuilder, x: View, *, dtype: int | None = None, seed: float | None = None
) -> View:
    key, kind = key_of(build.node, seed), build.results[0][0]
    draws = counted(build, x.shape, x.dtype, lambda c: unit(key, c, x.dtype))
    return build.cast(build.map("lt", draws, x), kind)


def _infer_multinomial(
    ctx: InferContext, x: Known, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Known:
    if x.rank != 2:
        raise ShapeMismatch(f"Multinomial of a tensor of rank {x.rank}")
    kind = dtype_of_code(dtype)
    if kind.name not in ("int32", "int64"):
        raise UnsupportedDtype(f"Multinomial as {kind}")
    return Known(kind, (x.shape[0], IntExpr.of(sample_size)))


def _lower_multinomial(
    build: NestBuilder, x: View, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> View:
    """The largest of the log-probabilities, each with noise of Gumbel's distribution added."""
    kind, shape = build.results[0]
    key, wide = key_of(build.node, seed), (*shape, x.shape[1])

    def noise(counter: Expr) -> Expr:
        drawn = unit(key, counter, x.dtype)
        inner = call("neg", log(select(call("gt", drawn, 0.0), drawn, 2.0**-25)))
        return call("neg", log(inner))

    scores = build.map(
        "add",
        counted(build, wide, x.dtype, noise),
        reindex(x, wide, lambda index: (index[0], index[2])),
    )
    best = first_extreme(build, "max", build.materialise(scores), 2)
    return build.cast(reindex(best, shape, lambda index: (*index, ZERO)), kind)


OPS = (
    Operator("Bernoulli", _infer_bernoulli, _lower_bernoulli, dtypes=FLOATS),
    Operator("Multinomial", _infer_multinomial, _lower_multinomial, kind="reduce", dtypes=FLOATS),
    Operator("RandomNormal", _infer_made, _lower_normal, dtypes=ANY),
    Operator("RandomNormalLike", _infer_like, _lower_normal, dtypes=ANY),
    Operator("RandomUniform", _infer_made, _lower_uniform, dtypes=ANY),
    Operator("RandomUniformLike", _infer_like, _lower_uniform, dtypes=ANY),
)
