"""BERT-base and its feed-forward block as published, and small ones of the same build."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from tests.networks.graph import GraphWriter


def bert(
    name: str,
    *,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    inner: int = 3072,
    vocabulary: int = 30522,
    batch: int | str = 1,
    seq: int | str = 128,
    positions: int = 128,
) -> onnx.ModelProto:
    """Encoder with post-norm; a free `seq` takes the first of the position embeddings."""
    g = GraphWriter(name, seed=12)
    ids = g.input("input_ids", [batch, seq], TensorProto.INT64)
    x = g.node("Gather", g.normal(vocabulary, width, spread=0.02), ids, axis=0)
    place = g.normal(1, positions, width, spread=0.02)
    if isinstance(seq, str):
        length = g.node("Slice", g.node("Shape", ids), g.numbers(1), g.numbers(2))
        place = g.node("Slice", place, g.numbers(0), length, g.numbers(1))
    x = g.layer_norm(g.node("Add", x, place), width)
    for _ in range(layers):
        x = g.layer_norm(g.node("Add", x, _attention(g, x, width, heads)), width)
        x = g.layer_norm(g.node("Add", x, _feed_forward(g, x, width, inner)), width)
    g.node("Identity", x, to="hidden")
    g.output("hidden", [batch, seq, width])
    return g.model()


def bert_ffn(
    name: str, *, width: int = 768, inner: int = 3072, batch: int | str = 1, seq: int | str = 128
) -> onnx.ModelProto:
    """MatMul, GELU, MatMul: where most of BERT's time goes."""
    g = GraphWriter(name, seed=13)
    x = g.input("x", [batch, seq, width])
    g.node("Identity", _feed_forward(g, x, width, inner), to="y")
    g.output("y", [batch, seq, width])
    return g.model()


def _feed_forward(g: GraphWriter, x: str, width: int, inner: int) -> str:
    return g.linear(g.gelu(g.linear(x, width, inner)), inner, width)


def _attention(g: GraphWriter, x: str, width: int, heads: int) -> str:
    depth = width // heads

    def by_head(order: list[int]) -> str:
        """(batch, seq, width) to (batch, heads, seq, depth), or its last two swapped."""
        rows = g.node("Reshape", g.linear(x, width, width), g.numbers(0, 0, heads, depth))
        return g.node("Transpose", rows, perm=order)

    query, key, value = by_head([0, 2, 1, 3]), by_head([0, 2, 3, 1]), by_head([0, 2, 1, 3])
    scores = g.node("MatMul", query, key)
    scores = g.node("Div", scores, g.parameter(math.sqrt(depth), np.float32))
    mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), value)
    rows = g.node("Reshape", g.node("Transpose", mixed, perm=[0, 2, 1, 3]), g.numbers(0, 0, width))
    return g.linear(rows, width, width)
