"""NonZero: the positions of the elements that are not zero, in row-major order."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr, apply
from cuvil_build.kernel.routine_writer import symbol
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import cast
from cuvil_build.ops.shapes import ANY


def infer(ctx: InferContext, x: Known) -> Known:
    count = ctx.measured("count", 0, product(x.shape))
    return Known(INT64, (IntExpr.of(x.rank), count))


def measure(build: NestBuilder, x: View) -> View:
    flags = build.map(lambda e: cast(is_set(e), INT64), x)
    return build.reduce("sum", flags, range(x.rank), keepdims=False)


def lower(build: NestBuilder, x: View) -> View:
    x = build.operand(x)
    dtype, shape = build.results[0]
    positions = build.result(0, dtype, shape)
    with build.routine("loop") as r:
        count = r.let(0, "count")
        with r.loops(x.shape) as index, r.when(is_set(x.at(index))):
            for axis, entry in enumerate(index):
                r.store(positions, (axis, symbol(count)), entry)
            r.increase(count)
    return of_buffer(positions)


def is_set(value: Expr) -> Expr:
    """NaN counts as set."""
    if value.dtype.kind == "bool":
        return value
    return apply("ne", value, Const(0.0 if value.dtype.is_float else 0, value.dtype))


OP = Operator("NonZero", infer, lower, kind="loop", dtypes=ANY, measure=measure)
