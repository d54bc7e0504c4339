"""What attention operators of onnxruntime share: heads, masks, caches, the product with its softmax."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import BOOL, INT64, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import NotYet
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.rotary_embedding import range_of


def heads_of(build: Expansion, x: ir.Value, heads: int) -> ir.Value:
    """(batch, steps, heads * size) as (batch, heads, steps, size)."""
    return build.transpose(build.reshape(x, 0, 0, heads, -1), [0, 2, 1, 3])


def joined_heads(build: Expansion, x: ir.Value) -> ir.Value:
    """(batch, heads, steps, size) as (batch, steps, heads * size)."""
    return build.reshape(build.transpose(x, [0, 2, 1, 3]), 0, 0, -1)


def lowest(dtype: DType) -> float:
    if dtype.name in ("float32", "float64", "float16"):
        return float(np.finfo(dtype.numpy).min)
    raise NotYet(f"masks of {dtype}")


def attend(
    build: Expansion,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    *,
    scale: float = 0.0,
    bias: ir.Value | None = None,
    allowed: ir.Value | None = None,
    softcap: float = 0.0,
) -> ir.Value:
    """All of (batch, heads, steps, size). `bias` is added to the scores; what is not allowed is out."""
    scores = build.mul(build.matmul(query, build.swap_last(key)), score_scale(build, query, scale))
    if softcap:
        scores = build.scaled(build.op("Tanh", build.scaled(scores, 1 / softcap)), softcap)
    if bias is not None:
        scores = build.add(scores, bias)
    if allowed is not None:
        scores = build.where(allowed, scores, build.scalar(lowest(build.dtype(scores)), scores))
    return build.matmul(build.op("Softmax", scores, axis=-1), value)


def score_scale(build: Expansion, query: ir.Value, scale: float) -> ir.Value:
    if scale:
        return build.scalar(scale, query)
    size = build.known(query).shape[-1]
    if size.is_static:
        return build.scalar(1 / math.sqrt(size.value), query)
    root = build.op("Sqrt", build.cast(build.dim(query, -1), build.dtype(query)))
    return build.op("Reciprocal", root)


def causal(build: Expansion, query: ir.Value, key: ir.Value) -> ir.Value:
    """Which keys come not after each query, aligned at the end: bool (steps, keys)."""
    steps, keys = build.dim(query, -2), build.dim(key, -2)
    rows = build.unsqueeze(build.add(range_of(build, steps), build.sub(keys, steps)), 1)
    return build.op("LessOrEqual", build.unsqueeze(range_of(build, keys), 0), rows)


def mask_bias(
    build: Expansion, mask: ir.Value, query: ir.Value, key: ir.Value, filter_value: float
) -> ir.Value:
    """A mask of any of onnxruntime's forms as numbers to add to the scores."""
    rank = build.rank(mask)
    if rank == 1:
        kept = _within_lengths(build, mask, query, key)
    elif rank == 2:
        kept = build.unsqueeze(build.cast(mask, BOOL), 1, 2)
    elif rank == 3:
        kept = build.unsqueeze(build.cast(mask, BOOL), 1)
    else:
        raise NotYet(f"an attention mask of rank {rank}")
    dtype = build.dtype(query)
    return build.where(kept, build.scalar(0.0, dtype), build.scalar(filter_value, dtype))


def _within_lengths(build: Expansion, mask: ir.Value, query: ir.Value, key: ir.Value) -> ir.Value:
    """Keys before an end, one a row, or between ends and starts: bool (batch, 1, 1, keys)."""
    batch, count = build.known(query).shape[0], build.known(mask).shape[0]
    places = range_of(build, build.dim(key, -2))
    lengths = build.cast(mask, INT64)
    if count == batch:
        return build.op("Less", places, build.reshape(lengths, -1, 1, 1, 1))
    if count == batch * IntExpr.of(2):
        ends, starts = build.ops("Split", lengths, axis=0, num_outputs=2, outputs=2)
        before = build.op("Less", places, build.reshape(ends, -1, 1, 1, 1))
        return build.op("And", before, build.op("GreaterOrEqual", places, build.reshape(starts, -1, 1, 1, 1)))
    raise NotYet(f"an attention mask of {count} numbers for {batch} rows")


def summed(build: Expansion, *parts: ir.Value | None) -> ir.Value | None:
    """The sum of those that are there."""
    given = [p for p in parts if p is not None]
    total = given[0] if given else None
    for part in given[1:]:
        assert total is not None
        total = build.add(total, part)
    return total
