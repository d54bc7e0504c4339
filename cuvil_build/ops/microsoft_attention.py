"""com.microsoft's Attention and QAttention: the projection of the input, then attention over its heads."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from cuvil_build.errors import NotYet
from cuvil_build.ops.attention_parts import attend, causal, heads_of, joined_heads, mask_bias, summed
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator

Outputs = tuple[ir.Value, ...]
FILTER = -10000.0


def expand(
    build: Expansion,
    x: ir.Value,
    weights: ir.Value,
    bias: ir.Value | None = None,
    mask: ir.Value | None = None,
    past: ir.Value | None = None,
    attention_bias: ir.Value | None = None,
    past_length: ir.Value | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = FILTER,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] = (),
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Outputs:
    if do_rotary or past_present_share_buffer or past_length is not None:
        raise NotYet("Attention with do_rotary or past_present_share_buffer")
    projected = build.matmul(x, weights)
    if bias is not None:
        projected = build.add(projected, bias)
    return _attention(
        build,
        projected,
        mask,
        past,
        attention_bias,
        num_heads,
        qkv_hidden_sizes,
        mask_filter_value,
        scale,
        unidirectional,
    )


def expand_quantized(
    build: Expansion,
    x: ir.Value,
    weights: ir.Value,
    bias: ir.Value,
    x_scale: ir.Value,
    w_scale: ir.Value,
    mask: ir.Value | None = None,
    x_zero_point: ir.Value | None = None,
    w_zero_point: ir.Value | None = None,
    past: ir.Value | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = FILTER,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Outputs:
    if do_rotary or past_present_share_buffer:
        raise NotYet("QAttention with do_rotary or past_present_share_buffer")
    projected = build.op(
        "MatMulIntegerToFloat",
        x,
        weights,
        x_scale,
        w_scale,
        x_zero_point,
        w_zero_point,
        bias,
        domain="com.microsoft",
    )
    return _attention(
        build, projected, mask, past, None, num_heads, (), mask_filter_value, scale, unidirectional
    )


def _attention(
    build: Expansion,
    projected: ir.Value,
    mask: ir.Value | None,
    past: ir.Value | None,
    attention_bias: ir.Value | None,
    heads: int,
    sizes: Sequence[int],
    filter_value: float,
    scale: float,
    unidirectional: int,
) -> Outputs:
    if sizes:
        parts = build.split(projected, sizes, axis=2)
    else:
        parts = build.ops("Split", projected, axis=2, num_outputs=3, outputs=3)
    query, key, value = (heads_of(build, part, heads) for part in parts)
    if past is not None:
        before = build.ops("Split", past, axis=0, num_outputs=2, outputs=2)
        key, value = (build.concat([build.squeeze(old, 0), new], 2) for old, new in zip(before, (key, value)))
    bias = summed(
        build, None if mask is None else mask_bias(build, mask, query, key, filter_value), attention_bias
    )
    allowed = causal(build, query, key) if unidirectional else None
    result = joined_heads(build, attend(build, query, key, value, scale=scale, bias=bias, allowed=allowed))
    if not build.is_read(1):
        return (result,)
    return result, build.concat([build.unsqueeze(key, 0), build.unsqueeze(value, 0)], 0)


OPS = (
    Operator("Attention", expand=expand, domain="com.microsoft"),
    Operator("QAttention", expand=expand_quantized, domain="com.microsoft"),
)
