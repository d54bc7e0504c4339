"""MatMulInteger: the matrix product of 8-bit operands, exact in int32."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT32
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.ops.matmul import infer_product, lower_product
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.quantization import centred
from cuvil_build.ops.scalar import cast, mul

BYTES = ("int8", "uint8")


def infer(
    ctx: InferContext,
    a: Known,
    b: Known,
    a_zero_point: Known | None = None,
    b_zero_point: Known | None = None,
) -> Known:
    return Known(INT32, infer_product(ctx, a, b))


def lower(
    build: NestBuilder,
    a: View,
    b: View,
    a_zero_point: View | None = None,
    b_zero_point: View | None = None,
) -> View:
    left = centred(build, a, a_zero_point, axis=max(a.rank - 2, 0))
    right = centred(build, b, b_zero_point, axis=b.rank - 1)
    return lower_product(build, left, right, INT32, _product)


def _product(left: Expr, right: Expr) -> Expr:
    return mul(cast(left, INT32), cast(right, INT32))


OP = Operator("MatMulInteger", infer, lower, kind="contraction", dtypes=BYTES)
