"""FusedGemm: Gemm and an activation."""

from __future__ import annotations

import onnx_ir as ir

from cuvil_build.ops.activation import activated
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand(
    build: Expansion,
    a: ir.Value,
    b: ir.Value,
    c: ir.Value | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> ir.Value:
    total = build.op("Gemm", a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    second = activation_gamma if activation == "Selu" else activation_beta
    return activated(build, total, activation, (activation_alpha, second))


OP = Operator("FusedGemm", expand=expand, domain="com.microsoft")
