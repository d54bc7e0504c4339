"""Gelu in the forms that onnxruntime's optimisers write: with a bias, or by a cheaper curve."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand_gelu(build: Expansion, x: ir.Value) -> ir.Value:
    return build.op("Gelu", x)


def expand_bias_gelu(build: Expansion, x: ir.Value, bias: ir.Value) -> ir.Value:
    return build.op("Gelu", build.add(x, bias))


def expand_fast_gelu(build: Expansion, x: ir.Value, bias: ir.Value | None = None) -> ir.Value:
    total = x if bias is None else build.add(x, bias)
    return build.op("Gelu", total, approximate="tanh")


def expand_quick_gelu(build: Expansion, x: ir.Value, *, alpha: float = 1.702) -> ir.Value:
    return build.mul(x, build.op("Sigmoid", build.scaled(x, alpha)))


def expand_bias_split_gelu(build: Expansion, x: ir.Value, bias: ir.Value) -> ir.Value:
    """The left half, times the gelu of the right half."""
    left, right = build.ops("Split", build.add(x, bias), axis=-1, num_outputs=2, outputs=2)
    return build.mul(left, build.op("Gelu", right))


OPS = tuple(
    Operator(name, expand=function, domain="com.microsoft")
    for name, function in (
        ("BiasGelu", expand_bias_gelu),
        ("BiasSplitGelu", expand_bias_split_gelu),
        ("FastGelu", expand_fast_gelu),
        ("Gelu", expand_gelu),
        ("QuickGelu", expand_quick_gelu),
    )
)
