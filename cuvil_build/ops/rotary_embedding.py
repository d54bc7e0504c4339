"""com.microsoft's RotaryEmbedding, by ONNX's own: positions may be one offset for all rows."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.errors import NotYet
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand(
    build: Expansion,
    x: ir.Value,
    positions: ir.Value,
    cos: ir.Value,
    sin: ir.Value,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> ir.Value:
    if is_packed_batching or scale != 1.0:
        raise NotYet("RotaryEmbedding with is_packed_batching or scale")
    batch, steps = build.dim(x, 0), build.dim(x, -2)
    if build.rank(positions) < 2:
        positions = build.add(range_of(build, steps), positions)
        positions = build.op("Expand", positions, build.dims(batch, steps))
    return rotated(build, x, positions, cos, sin, interleaved, rotary_embedding_dim, num_heads)


def rotated(
    build: Expansion,
    x: ir.Value,
    positions: ir.Value,
    cos: ir.Value,
    sin: ir.Value,
    interleaved: int = 0,
    rotary_dim: int = 0,
    heads: int = 0,
) -> ir.Value:
    """Of (batch, heads, steps, size), or (batch, steps, heads * size), at (batch, steps) positions."""
    if build.rank(x) == 3 and not heads:
        heads = _heads(build, x, cos, rotary_dim)
    return build.op(
        "RotaryEmbedding",
        x,
        cos,
        sin,
        build.cast(positions, INT64),
        interleaved=interleaved,
        rotary_embedding_dim=rotary_dim,
        num_heads=heads,
    )


def _heads(build: Expansion, x: ir.Value, cos: ir.Value, rotary_dim: int) -> int:
    """The cache is half as wide as a head, where all of it turns."""
    size, half = build.known(x).shape[-1], build.known(cos).shape[-1]
    if rotary_dim or not (size.is_static and half.is_static):
        raise NotYet("RotaryEmbedding without num_heads on heads that turn in part")
    return size.value // (2 * half.value)


def range_of(build: Expansion, count: ir.Value) -> ir.Value:
    """0, 1, 2 ... as int64, for an int64[1] count."""
    zero, one = build.scalar(0, INT64), build.scalar(1, INT64)
    return build.op("Range", zero, build.reshape(count), one)


OP = Operator("RotaryEmbedding", expand=expand, domain="com.microsoft")
