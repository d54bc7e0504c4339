"""ConvTransposeWithDynamicPads: its paddings are an operand, which has to be known."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from cuvil_build.errors import NotYet
from cuvil_build.ops.expansion import Expansion
from cuvil_build.ops.operator import Operator
from cuvil_build.ops.shapes import static_integers


def expand(
    build: Expansion,
    x: ir.Value,
    w: ir.Value,
    pads: ir.Value | None = None,
    bias: ir.Value | None = None,
    **attributes: Any,
) -> ir.Value:
    if pads is None:
        return build.op("ConvTranspose", x, w, bias, **attributes)
    known = build.known(pads)
    if known.contents is None and known.constant is None:
        raise NotYet("ConvTransposeWithDynamicPads whose pads are computed from data")
    return build.op("ConvTranspose", x, w, bias, **attributes, pads=static_integers(known, "pads"))


OP = Operator("ConvTransposeWithDynamicPads", expand=expand, domain="com.microsoft")
