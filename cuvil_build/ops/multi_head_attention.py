"""com.microsoft's MultiHeadAttention: projected operands, apart or packed, with a cache."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.errors import NotYet
from cuvil_build.ops.attention_parts import attend, causal, heads_of, joined_heads, mask_bias, summed
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand(
    build: Expansion,
    query: ir.Value,
    key: ir.Value | None = None,
    value: ir.Value | None = None,
    bias: ir.Value | None = None,
    padding_mask: ir.Value | None = None,
    attention_bias: ir.Value | None = None,
    past_key: ir.Value | None = None,
    past_value: ir.Value | None = None,
    past_length: ir.Value | None = None,
    cache_indirection: ir.Value | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[ir.Value, ...]:
    if past_length is not None or cache_indirection is not None or build.is_read(3):
        raise NotYet("MultiHeadAttention with a shared cache, or whose scores are read")
    q, k, v = _operands(build, query, key, value, bias, num_heads)
    if past_key is not None and past_value is not None:
        k, v = build.concat([past_key, k], 2), build.concat([past_value, v], 2)
    mask = None if padding_mask is None else mask_bias(build, padding_mask, q, k, mask_filter_value)
    allowed = causal(build, q, k) if unidirectional else None
    total = summed(build, mask, attention_bias)
    result = joined_heads(build, attend(build, q, k, v, scale=scale, bias=total, allowed=allowed))
    return result, k, v


def _operands(
    build: Expansion,
    query: ir.Value,
    key: ir.Value | None,
    value: ir.Value | None,
    bias: ir.Value | None,
    heads: int,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Query, key and value as (batch, heads, steps, size), with their biases."""
    if key is None:
        if bias is not None:
            query = build.add(query, _packed_bias(build, bias, heads))
        q, k, v = _unpacked(build, query, 3)
        return q, k, v
    biases = _biases(build, query, value, bias, heads)
    q = heads_of(build, _biased(build, query, biases[0]), heads)
    if value is None:
        k, v = _unpacked(build, key, 2)
        return q, k, v
    if build.rank(key) == 4:
        return q, key, value
    sides = [heads_of(build, _biased(build, x, b), heads) for x, b in zip((key, value), biases[1:])]
    return q, sides[0], sides[1]


def _unpacked(build: Expansion, packed: ir.Value, count: int) -> list[ir.Value]:
    """(batch, steps, heads, count, size) as that many of (batch, heads, steps, size)."""
    turned = build.transpose(packed, [3, 0, 2, 1, 4])
    parts = build.ops("Split", turned, axis=0, num_outputs=count, outputs=count)
    return [build.squeeze(part, 0) for part in parts]


def _packed_bias(build: Expansion, bias: ir.Value, heads: int) -> ir.Value:
    """(3 * heads * size) as (heads, 3, size)."""
    return build.transpose(build.reshape(bias, 3, heads, -1), [1, 0, 2])


def _biases(
    build: Expansion, query: ir.Value, value: ir.Value | None, bias: ir.Value | None, heads: int
) -> list[ir.Value | None]:
    """Of query and key, which are equally long, and of value."""
    if bias is None:
        return [None, None, None]
    width = build.dim(query, 2)
    second = build.add(width, width)
    return [
        build.slice(bias, 0, 0, width),
        build.slice(bias, 0, width, second),
        build.slice(bias, 0, second, build.dim(bias, 0)),
    ]


def _biased(build: Expansion, x: ir.Value, bias: ir.Value | None) -> ir.Value:
    return x if bias is None else build.add(x, bias)


OP = Operator("MultiHeadAttention", expand=expand, domain="com.microsoft")
