"""Normalizations of onnxruntime: without a mean, of a sum with a residual, of a sum of embeddings."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.cuir.dtypes import INT32
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator

Outputs = tuple[ir.Value | None, ...]


def expand_simplified(
    build: Expansion,
    x: ir.Value,
    scale: ir.Value,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Outputs:
    result = build.op("RMSNormalization", x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)
    return result, _inverse_root(build, x, axis, epsilon) if build.is_read(1) else None


def expand_skip(
    build: Expansion,
    x: ir.Value,
    skip: ir.Value,
    gamma: ir.Value,
    beta: ir.Value | None = None,
    bias: ir.Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> Outputs:
    total = _sum(build, x, skip, bias)
    result, mean, inverse = build.ops(
        "LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon, outputs=3
    )
    return result, mean, inverse, total


def expand_skip_simplified(
    build: Expansion,
    x: ir.Value,
    skip: ir.Value,
    gamma: ir.Value,
    bias: ir.Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> Outputs:
    total = _sum(build, x, skip, bias)
    result = build.op("RMSNormalization", total, gamma, axis=-1, epsilon=epsilon)
    return result, None, _inverse_root(build, total, -1, epsilon) if build.is_read(2) else None, total


def expand_embed(
    build: Expansion,
    ids: ir.Value,
    segments: ir.Value | None,
    words: ir.Value,
    positions: ir.Value,
    segment_table: ir.Value | None,
    gamma: ir.Value,
    beta: ir.Value,
    mask: ir.Value | None = None,
    position_ids: ir.Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Outputs:
    total = build.op("Gather", words, ids, axis=0)
    if position_ids is not None:
        total = build.add(total, build.op("Gather", positions, position_ids, axis=0))
    else:
        total = build.add(total, build.slice(positions, 0, 0, build.dim(ids, 1)))
    if segments is not None and segment_table is not None:
        total = build.add(total, build.op("Gather", segment_table, segments, axis=0))
    result = build.op("LayerNormalization", total, gamma, beta, axis=-1, epsilon=epsilon)
    return result, _lengths(build, ids, mask) if build.is_read(1) else None, total


def _lengths(build: Expansion, ids: ir.Value, mask: ir.Value | None) -> ir.Value:
    """How many elements of each row the mask lets through."""
    if mask is not None:
        return build.op("ReduceSum", build.cast(mask, INT32), [1], keepdims=0)
    return build.op("Expand", build.scalar(0, INT32), build.dim(ids, 0))


def _sum(build: Expansion, x: ir.Value, skip: ir.Value, bias: ir.Value | None) -> ir.Value:
    total = build.add(x, skip)
    return total if bias is None else build.add(total, bias)


def _inverse_root(build: Expansion, x: ir.Value, axis: int, epsilon: float) -> ir.Value:
    rank = build.rank(x)
    axes = list(range(axis % rank, rank))
    mean = build.op("ReduceMean", build.mul(x, x), axes)
    return build.op("Reciprocal", build.op("Sqrt", build.add(mean, build.scalar(epsilon, x))))


OPS = (
    Operator("EmbedLayerNormalization", expand=expand_embed, domain="com.microsoft"),
    Operator("SimplifiedLayerNormalization", expand=expand_simplified),
    Operator("SimplifiedLayerNormalization", expand=expand_simplified, domain="com.microsoft"),
    Operator("SkipLayerNormalization", expand=expand_skip, domain="com.microsoft"),
    Operator("SkipSimplifiedLayerNormalization", expand=expand_skip_simplified, domain="com.microsoft"),
)
