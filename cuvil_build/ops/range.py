"""Range: numbers with a constant step."""

from __future__ import annotations

import math

from cuvil_build.cuir.int_expr import IntExpr, ceil_divide, maximum
from cuvil_build.errors import NotYet, ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import integer
from cuvil_build.ops.contents import Contents, array_of
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, mul
from cuvil_build.ops.shapes import NUMBERS, same_dtype


def infer(ctx: InferContext, start: Known, limit: Known, delta: Known) -> Known:
    dtype = same_dtype(start, limit, delta)
    if dtype.is_float:
        return Known(dtype, (IntExpr.of(_float_count(start, limit, delta)),))
    first, last, step = (_number(k) for k in (start, limit, delta))
    return Known(dtype, (_count(ctx, first, last, step),))


def lower(build: NestBuilder, start: View, limit: View, delta: View) -> View:
    dtype, shape = build.results[0]

    def at(index: Index) -> Expr:
        return add(start.at(()), mul(integer(index[0], dtype), delta.at(())))

    return build.compute(shape, dtype, at)


def evaluate(ctx: InferContext, start: Contents, limit: Contents, delta: Contents) -> Contents | None:
    first, last, step = (IntExpr.of(c.reshape(-1)[0]) for c in (start, limit, delta))
    count = _count(ctx, first, last, step)
    if not count.is_static or count.value > 256:
        return None
    return array_of([first + step * k for k in range(count.value)], (count.value,))


def _count(ctx: InferContext, first: IntExpr, last: IntExpr, step: IntExpr) -> IntExpr:
    if not step.is_static:
        raise NotYet(f"Range with a step of {step}")
    if step.value == 0:
        raise ShapeMismatch("Range with a step of 0")
    span = last - first if step.value > 0 else first - last
    count = ceil_divide(span, abs(step.value))
    return count if ctx.bounds(count)[0] >= 0 else maximum(count, 0)


def _number(known: Known) -> IntExpr:
    if known.contents is None:
        raise NotYet("Range computed from data; its operands must be constants or follow from shapes")
    return IntExpr.of(known.contents.reshape(-1)[0])


def _float_count(*operands: Known) -> int:
    values = [float(k.constant.reshape(-1)[0]) for k in operands if k.constant is not None]
    if len(values) != 3:
        raise NotYet("Range computed from data; its operands must be constants or follow from shapes")
    first, last, step = values
    return max(math.ceil((last - first) / step), 0)


OP = Operator("Range", infer, lower, dtypes=NUMBERS, evaluate=evaluate, shape_operands=(0, 1, 2))
