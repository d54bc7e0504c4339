"""Gemm: alpha * op(A) * op(B) + beta * C."""

from __future__ import annotations

from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import transpose
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import mul
from cuvil_build.ops.shapes import NUMBERS, broadcast_to, same_dtype


def infer(
    ctx: InferContext,
    a: Known,
    b: Known,
    c: Known | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Known:
    if a.rank != 2 or b.rank != 2:
        raise ShapeMismatch(f"Gemm of ranks {a.rank} and {b.rank}; both must be 2")
    rows, inner = a.shape[::-1] if transA else a.shape
    other, columns = b.shape[::-1] if transB else b.shape
    ctx.require_equal(inner, other, "inner dims of Gemm")
    if c is not None:
        broadcast_to(ctx, c.shape, (rows, columns), "C of Gemm")
    return Known(same_dtype(a, b), (rows, columns))


def lower(
    build: NestBuilder,
    a: View,
    b: View,
    c: View | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> View:
    left, right = build.factors(transpose(a, (1, 0)) if transA else a, transpose(b, (1, 0)) if transB else b)

    def body(index: Index, loops: Index) -> Expr:
        return mul(left.at((index[0], *loops)), right.at((*loops, index[1])))

    inner = right.shape[0] if right.shape[0].is_static else left.shape[1]
    product = build.reduce_over("sum", (left.shape[0], right.shape[1]), [inner], body, a.dtype)
    scaled = _scaled(build, product, alpha)
    return scaled if c is None else build.map("add", scaled, _scaled(build, c, beta))


def _scaled(build: NestBuilder, view: View, factor: float) -> View:
    if factor == 1.0:
        return view
    number = factor if view.dtype.is_float else int(factor)
    return build.map(lambda e: mul(e, number), view)


OP = Operator("Gemm", infer, lower, kind="contraction", dtypes=NUMBERS)
