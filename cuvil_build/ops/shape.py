"""Shape: the sizes of a tensor, or of some of its axes."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.ops.contents import array_of
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY


def infer(ctx: InferContext, x: Known, *, start: int = 0, end: int | None = None) -> Known:
    dims = x.shape[slice(start, end)]
    return Known(INT64, (IntExpr.of(len(dims)),), contents=array_of(dims, (len(dims),)))


OP = Operator("Shape", infer, kind="host", dtypes=ANY)
