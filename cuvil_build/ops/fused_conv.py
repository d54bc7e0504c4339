"""FusedConv and NhwcConv: convolutions with a residual and an activation, and with channels last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from cuvil_build.ops.activation import activated
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator


def expand_fused(
    build: Expansion,
    x: ir.Value,
    w: ir.Value,
    bias: ir.Value | None = None,
    residual: ir.Value | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    **attributes: Any,
) -> ir.Value:
    total = build.op("Conv", x, w, bias, **attributes)
    if residual is not None:
        total = build.add(total, residual)
    return activated(build, total, activation, activation_params)


def expand_nhwc(
    build: Expansion, x: ir.Value, w: ir.Value, bias: ir.Value | None = None, **attributes: Any
) -> ir.Value:
    rank = build.rank(x)
    first = build.transpose(x, [0, rank - 1, *range(1, rank - 1)])
    return build.transpose(build.op("Conv", first, w, bias, **attributes), [0, *range(2, rank), 1])


OPS = (
    Operator("FusedConv", expand=expand_fused, domain="com.microsoft"),
    Operator("NhwcConv", expand=expand_nhwc, domain="com.microsoft"),
)
