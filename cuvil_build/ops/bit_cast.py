"""BitCast: the same bits as another dtype."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import UINT8
from cuvil_build.errors import UnsupportedDtype
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.stored import rounded
from cuvil_build.ops import scalar
from cuvil_build.ops.cast import dtype_of_code
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY


def infer(ctx: InferContext, x: Known, *, to: int) -> Known:
    dtype = dtype_of_code(to)
    if dtype.bits != x.dtype.bits:
        raise UnsupportedDtype(f"BitCast of {x.dtype} to {dtype}, which has another width")
    return Known(dtype, x.shape)


def lower(build: NestBuilder, x: View, *, to: int) -> View:
    source, target = build.operand_dtypes[0], dtype_of_code(to)
    assert source is not None

    def element(value: Expr) -> Expr:
        """Through the bits: what is only stored has no other form that keeps them."""
        bits = value
        if source.is_stored_only:
            bits = scalar.bitcast(rounded(value, source), source.bits_dtype)
        elif source.kind == "bool":
            bits = scalar.cast(value, UINT8)
        if target.kind == "bool":
            return scalar.cast(bits, target)
        found = scalar.bitcast(bits, target)
        return scalar.cast(found, target.carrier)

    return build.map(element, x)


OP = Operator("BitCast", infer, lower, kind="copy", dtypes=ANY)
