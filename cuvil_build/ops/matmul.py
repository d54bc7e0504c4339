"""MatMul: numpy's matrix product, with stacks of matrices."""

from __future__ import annotations

from collections.abc import Callable

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ONE, IntExpr
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import expand, reshape
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import mul
from cuvil_build.ops.shapes import NUMBERS, Shape, broadcast, same_dtype

Multiply = Callable[[Expr, Expr], Expr]


def infer(ctx: InferContext, a: Known, b: Known) -> Known:
    return Known(same_dtype(a, b), infer_product(ctx, a, b))


def infer_product(ctx: InferContext, a: Known, b: Known) -> Shape:
    """The shape of the product."""
    if not a.rank or not b.rank:
        raise ShapeMismatch("MatMul of a scalar")
    inner = b.shape[0] if b.rank == 1 else b.shape[-2]
    ctx.require_equal(a.shape[-1], inner, "inner dims of MatMul")
    batch = broadcast(ctx, [a.shape[:-2], b.shape[:-2]], "batch dims of MatMul")
    rows = () if a.rank == 1 else (a.shape[-2],)
    columns = () if b.rank == 1 else (b.shape[-1],)
    return (*batch, *rows, *columns)


def lower(build: NestBuilder, a: View, b: View) -> View:
    return lower_product(build, *build.factors(a, b), a.dtype, mul)


def lower_product(build: NestBuilder, a: View, b: View, dtype: DType, multiply: Multiply) -> View:
    """The product of operands that are cheap to read; `multiply` gives numbers of the dtype."""
    result = build.results[0][1]
    batch = result[: len(result) - (a.rank > 1) - (b.rank > 1)]
    left = expand(a if a.rank > 1 else reshape(a, (ONE, a.shape[0])), (*batch, *_matrix(a, row=True)))
    right = expand(b if b.rank > 1 else reshape(b, (b.shape[0], ONE)), (*batch, *_matrix(b, row=False)))

    def body(index: Index, loops: Index) -> Expr:
        stack, row, column = index[:-2], index[-2], index[-1]
        return multiply(left.at((*stack, row, *loops)), right.at((*stack, *loops, column)))

    shape = (*batch, left.shape[-2], right.shape[-1])
    product = build.reduce_over("sum", shape, [_inner(left, right)], body, dtype)
    return reshape(product, result)


def _matrix(view: View, row: bool) -> tuple[IntExpr, IntExpr]:
    if view.rank > 1:
        return view.shape[-2], view.shape[-1]
    return (ONE, view.shape[0]) if row else (view.shape[0], ONE)


def _inner(left: View, right: View) -> IntExpr:
    """Equal by inference; a number where either side has one."""
    return right.shape[-2] if right.shape[-2].is_static else left.shape[-1]


OP = Operator("MatMul", infer, lower, kind="contraction", dtypes=NUMBERS)
