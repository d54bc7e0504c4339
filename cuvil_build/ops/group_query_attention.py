"""com.microsoft's GroupQueryAttention: several query heads share a head of keys, with a cache of past ones.

Each row of the batch has a length of its own: its new keys stand behind its own past ones in the cache.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.errors import NotYet
from cuvil_build.ops.attention_parts import heads_of, joined_heads, lowest, score_scale
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator
from cuvil_build.ops.rotary_embedding import range_of, rotated


def expand(
    build: Expansion,
    query: ir.Value,
    key: ir.Value | None,
    value: ir.Value | None,
    past_key: ir.Value | None,
    past_value: ir.Value | None,
    lengths: ir.Value,
    total: ir.Value,
    cos: ir.Value | None = None,
    sin: ir.Value | None = None,
    positions: ir.Value | None = None,
    attention_bias: ir.Value | None = None,
    head_sink: ir.Value | None = None,
    *unknown: ir.Value | None,
    causal: int = 1,
    do_rotary: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    **attributes: Any,
) -> tuple[ir.Value, ...]:
    _refuse(unknown, attributes)
    if key is None or value is None:
        query, key, value = _unpacked(build, query, num_heads, kv_num_heads)
    q, k, v = (
        heads_of(build, x, heads)
        for x, heads in ((query, num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    steps = build.dim(q, 2)
    before = _past_lengths(build, lengths, total, steps, past_key is not None)
    places = build.add(build.unsqueeze(before, 1), build.unsqueeze(range_of(build, steps), 0))
    if do_rotary:
        if cos is None or sin is None:
            raise NotYet("GroupQueryAttention with do_rotary and without a cache of cosines and sines")
        turns = places if positions is None else positions
        width = _rotary_width(build, q, cos)
        q, k = (rotated(build, x, turns, cos, sin, rotary_interleaved, width) for x in (q, k))
    if past_key is not None and past_value is not None:
        count = _cache_size(build, past_key, total)
        k, v = (_appended(build, *pair, before, count) for pair in ((past_key, k), (past_value, v)))
    allowed = _allowed(build, places, build.dim(k, 2), causal, local_window_size)
    sink = _sink(build, head_sink, q, smooth_softmax)
    result = _attend(build, q, k, v, kv_num_heads, scale, softcap, attention_bias, allowed, sink)
    return joined_heads(build, result), k, v


def _refuse(unknown: tuple[ir.Value | None, ...], attributes: dict[str, Any]) -> None:
    """What only newer models have: caches of integers, norms of queries and keys, scores as an output."""
    plain = {"NONE", "", 0, -1}
    found = sorted(
        name for name, value in attributes.items() if value not in plain and not name.endswith("epsilon")
    )
    if found or any(v is not None for v in unknown):
        raise NotYet(
            f"GroupQueryAttention with {', '.join(found) or 'scales of a cache, norms or query lengths'}"
        )


def _unpacked(
    build: Expansion, packed: ir.Value, heads: int, kv_heads: int
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Query, key and value lie side by side."""
    width = build.known(packed).shape[-1]
    if not width.is_static:
        raise NotYet("a packed GroupQueryAttention whose width is not known")
    size = width.value // (heads + 2 * kv_heads)
    q, k, v = build.split(packed, [heads * size, kv_heads * size, kv_heads * size], axis=2)
    return q, k, v


def _past_lengths(
    build: Expansion, lengths: ir.Value, total: ir.Value, steps: ir.Value, has_past: bool
) -> ir.Value:
    """How many keys each row has from before: int64 (batch). The first call has none, whatever the cache."""
    counted = build.reshape(build.cast(lengths, INT64), -1)
    if not has_past:
        return build.sub(counted, counted)
    before = build.sub(build.add(counted, build.scalar(1, INT64)), steps)
    is_first = build.op("Equal", build.reshape(build.cast(total, INT64), 1), steps)
    return build.where(is_first, build.scalar(0, INT64), before)


def _rotary_width(build: Expansion, q: ir.Value, cos: ir.Value) -> int:
    """How much of a head turns; 0 for all of it."""
    size, half = build.known(q).shape[-1], build.known(cos).shape[-1]
    if size == half * IntExpr.of(2):
        return 0
    if not half.is_static:
        raise NotYet("GroupQueryAttention whose cache of cosines has a width that is not known")
    return 2 * half.value


def _cache_size(build: Expansion, past: ir.Value, total: ir.Value) -> ir.Value:
    """Keys of the new cache: the old one's where it is large enough."""
    return build.op("Max", build.dim(past, 2), build.reshape(build.cast(total, INT64), 1))


def _appended(build: Expansion, past: ir.Value, new: ir.Value, before: ir.Value, count: ir.Value) -> ir.Value:
    """The past up to each row's length, then the new."""
    if build.known(past).shape[2] == ZERO:
        return new
    place = build.unsqueeze(range_of(build, count), 0)
    old, length = build.dim(past, 2), build.unsqueeze(before, 1)
    moved = build.add(build.sub(place, length), old)
    last = build.sub(build.add(old, build.dim(new, 2)), build.scalar(1, INT64))
    source = build.op("Min", build.where(build.op("Less", place, length), place, moved), last)
    whole = build.concat([past, new], 2)
    target = build.dims(build.dim(past, 0), build.dim(past, 1), count, build.dim(past, 3))
    index = build.op("Expand", build.unsqueeze(source, 1, 3), target)
    return build.op("GatherElements", whole, index, axis=2)


def _allowed(build: Expansion, places: ir.Value, keys: ir.Value, causal: int, window: int) -> ir.Value | None:
    """bool (batch, 1, steps, keys)."""
    if not causal:
        raise NotYet("GroupQueryAttention with causal=0")
    own, other = build.unsqueeze(places, 1, 3), range_of(build, keys)
    found = build.op("LessOrEqual", other, own)
    if window > 0:
        first = build.sub(own, build.scalar(window, INT64))
        found = build.op("And", found, build.op("Greater", other, first))
    return found


def _sink(build: Expansion, head_sink: ir.Value | None, q: ir.Value, smooth: int) -> ir.Value | None:
    """A further score of each query, (batch, heads, steps, 1), that only takes weight away."""
    if head_sink is None and not smooth:
        return None
    heads = build.scalar(0.0, q) if head_sink is None else build.reshape(head_sink, -1, 1, 1)
    shape = build.dims(build.dim(q, 0), build.dim(q, 1), build.dim(q, 2), 1)
    return build.op("Expand", heads, shape)


def _attend(
    build: Expansion,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    groups: int,
    scale: float,
    softcap: float,
    bias: ir.Value | None,
    allowed: ir.Value | None,
    sink: ir.Value | None,
) -> ir.Value:
    """Query heads that share keys are rows of one product: nothing is repeated."""
    heads, steps, size = (build.dim(q, axis) for axis in (1, 2, 3))
    rows = build.reshape(q, 0, groups, -1, size)
    products = build.matmul(rows, build.swap_last(k))
    scores = build.op("Reshape", products, build.dims(build.dim(q, 0), heads, steps, build.dim(k, 2)))
    scores = build.mul(scores, score_scale(build, q, scale))
    if softcap:
        scores = build.scaled(build.op("Tanh", build.scaled(scores, 1 / softcap)), softcap)
    if bias is not None:
        scores = build.add(scores, bias)
    if allowed is not None:
        scores = build.where(allowed, scores, build.scalar(lowest(build.dtype(scores)), scores))
    if sink is not None:
        widened = build.op("Softmax", build.concat([scores, sink], 3), axis=-1)
        weights = build.slice(widened, 3, 0, build.dim(k, 2))
    else:
        weights = build.op("Softmax", scores, axis=-1)
    rows = build.op("Reshape", weights, build.dims(build.dim(q, 0), groups, -1, build.dim(k, 2)))
    return build.op("Reshape", build.matmul(rows, v), build.dims(build.dim(q, 0), heads, steps, -1))


OP = Operator("GroupQueryAttention", expand=expand, domain="com.microsoft")
