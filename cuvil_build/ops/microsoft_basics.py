"""com.microsoft operators that ONNX has by now, or that are a line of others."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.errors import NotYet
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand_trilu(build: Expansion, x: ir.Value, k: ir.Value | None = None, *, upper: int = 1) -> ir.Value:
    return build.op("Trilu", x, k, upper=upper)


def expand_gather_nd(build: Expansion, x: ir.Value, indices: ir.Value) -> ir.Value:
    return build.op("GatherND", x, indices)


def expand_range(
    build: Expansion, start: ir.Value, limit: ir.Value, delta: ir.Value | None = None
) -> ir.Value:
    step = build.scalar(1, start) if delta is None else delta
    scalars = [v if not build.rank(v) else build.reshape(v) for v in (start, limit, step)]
    return build.op("Range", *scalars)


def expand_bias_softmax(
    build: Expansion, x: ir.Value, bias: ir.Value, *, axis: int = 1, is_inner_broadcast: int
) -> ir.Value:
    if axis % build.rank(x) != build.rank(x) - 1:
        raise NotYet("BiasSoftmax over more than the last axis")
    return build.op("Softmax", build.add(x, bias), axis=-1)


def expand_bias_add(build: Expansion, x: ir.Value, bias: ir.Value, skip: ir.Value) -> ir.Value:
    return build.add(build.add(x, bias), skip)


OPS = (
    Operator("BiasAdd", expand=expand_bias_add, domain="com.microsoft"),
    Operator("BiasSoftmax", expand=expand_bias_softmax, domain="com.microsoft"),
    Operator("GatherND", expand=expand_gather_nd, domain="com.microsoft"),
    Operator("Range", expand=expand_range, domain="com.microsoft"),
    Operator("Trilu", expand=expand_trilu, domain="com.microsoft"),
)
