"""EyeLike: ones on one diagonal of a matrix as large as the operand."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ONE, ZERO
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import within
from cuvil_build.ops.cast import dtype_of_code
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY


def infer(ctx: InferContext, x: Known, *, dtype: int | None = None, k: int = 0) -> Known:
    if x.rank != 2:
        raise ShapeMismatch(f"EyeLike of a tensor of rank {x.rank}")
    return Known(x.dtype if dtype is None else dtype_of_code(dtype), x.shape)


def lower(build: NestBuilder, x: View, *, dtype: int | None = None, k: int = 0) -> View:
    kind, shape = build.results[0]
    zero, one = (
        Const(bool(n) if kind.kind == "bool" else float(n) if kind.is_float else n, kind) for n in (0, 1)
    )

    def at(index: Index) -> Expr:
        return within([(ZERO, index[1] - index[0] - k, ONE)], one, zero)

    return build.compute(shape, kind, at)


OP = Operator("EyeLike", infer, lower, dtypes=ANY)
