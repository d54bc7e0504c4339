"""Trilu: the upper or lower triangle of matrices."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import within
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, one_integer


def infer(ctx: InferContext, x: Known, k: Known | None = None, *, upper: int = 1) -> Known:
    if x.rank < 2:
        raise ShapeMismatch(f"Trilu of a tensor of rank {x.rank}")
    return Known(x.dtype, x.shape)


def lower(build: NestBuilder, x: View, k: View | None = None, *, upper: int = 1) -> View:
    diagonal = ZERO if k is None else one_integer(k, "the diagonal of Trilu")
    rows, columns = x.shape[-2:]
    zero = Const(False if x.dtype.kind == "bool" else 0.0 if x.dtype.is_float else 0, x.dtype)

    def at(index: Index) -> Expr:
        offset: IntExpr = index[-1] - index[-2]
        kept = (diagonal, offset, columns) if upper else (1 - rows, offset, diagonal + 1)
        return within([kept], x.at(index), zero)

    return build.compute(x.shape, x.dtype, at)


OP = Operator("Trilu", infer, lower, dtypes=ANY, shape_operands=(1,))
