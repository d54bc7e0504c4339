"""LRN: local response normalization across channels."""

from __future__ import annotations

from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.view import within
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, div, mul
from cuvil_build.ops.shapes import FLOATS, require_attribute


def infer(
    ctx: InferContext, x: Known, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0
) -> Known:
    require_attribute(size > 0, f"size={size}")
    if x.rank < 3:
        raise ShapeMismatch(f"LRN of a tensor of rank {x.rank}")
    return Known(x.dtype, x.shape)


def lower(
    build: NestBuilder, x: View, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0
) -> View:
    x = build.operand(x)
    before = (size - 1) // 2
    zero = Const(0.0, x.dtype)

    def body(index: Index, loops: Index) -> Expr:
        channel = index[1] + loops[0] - before
        element = x.at((index[0], channel, *index[2:]))
        return within([(ZERO, channel, x.shape[1])], mul(element, element), zero)

    total = build.reduce_over("sum", x.shape, [IntExpr.of(size)], body, x.dtype, anchor="reduce")

    def normal(element: Expr, squares: Expr) -> Expr:
        return div(element, call("pow", add(mul(squares, alpha / size), bias), beta))

    return build.map(normal, x, total)


OP = Operator("LRN", infer, lower, kind="reduce", dtypes=FLOATS)
