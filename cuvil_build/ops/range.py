"""Range: numbers with a constant step."""

from __future__ import annotations

import math

from cuvil_build.cuir.dtypes import FLOAT64, INT64
from cuvil_build.cuir.int_expr import ZERO, IntExpr, ceil_divide, maximum
from cuvil_build.errors import NotYet, ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.view import integer
from cuvil_build.ops.choices import Least, is_negative
from cuvil_build.ops.contents import Contents, array_of
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, cast, mul
from cuvil_build.ops.scalar import maximum as maximum_of
from cuvil_build.ops.shapes import NUMBERS, one_integer, same_dtype

READ = -(1 << 15)
"""Sizes don't reach down to this: an integer that could is read from memory when the module runs."""


def infer(ctx: InferContext, start: Known, limit: Known, delta: Known) -> Known:
    dtype = same_dtype(start, limit, delta)
    if not dtype.is_float:
        numbers = [_number(k) for k in (start, limit, delta)]
        if any(ctx.bounds(n)[0] <= READ for n in numbers):
            return Known(dtype, (ctx.measured("the length"),))
        return Known(dtype, (_count(lambda e: ctx.bounds(e)[0], *numbers),))
    if any(k.constant is None for k in (start, limit, delta)):
        return Known(dtype, (ctx.measured("the length"),))
    return Known(dtype, (IntExpr.of(_float_count(start, limit, delta)),))


def measure(build: NestBuilder, start: View, limit: View, delta: View) -> View:
    """Of floats: the span in the operands' dtype, as onnxruntime subtracts, divided in double precision."""
    if not start.dtype.is_float:
        first, last, delta_number = (one_integer(v, "an operand of Range") for v in (start, limit, delta))
        count = _count(build.low, first, last, delta_number)
        return build.scalar(count)
    span = build.cast(build.map("sub", _scalar(build, limit), _scalar(build, start)), FLOAT64)
    steps = build.map("ceil", build.map("div", span, build.cast(_scalar(build, delta), FLOAT64)))
    return build.map(lambda n: maximum_of(cast(n, INT64), 0), steps)


def _scalar(build: NestBuilder, view: View) -> View:
    return build.compute((), view.dtype, lambda index: view.at((ZERO,) * view.rank))


def lower(build: NestBuilder, start: View, limit: View, delta: View) -> View:
    dtype, shape = build.results[0]
    first, step = _scalar(build, start), _scalar(build, delta)

    def at(index: Index) -> Expr:
        return add(first.at(()), mul(integer(index[0], dtype), step.at(())))

    return build.compute(shape, dtype, at)


def evaluate(ctx: InferContext, start: Contents, limit: Contents, delta: Contents) -> Contents | None:
    first, last, step = (IntExpr.of(c.reshape(-1)[0]) for c in (start, limit, delta))
    count = _count(lambda e: ctx.bounds(e)[0], first, last, step)
    if not count.is_static or count.value > 256:
        return None
    return array_of([first + step * k for k in range(count.value)], (count.value,))


def _count(least: Least, first: IntExpr, last: IntExpr, step: IntExpr) -> IntExpr:
    if step == ZERO:
        raise ShapeMismatch("Range with a step of 0")
    back = is_negative(step, least)
    # a step of 0, which only data can give, must not divide
    size = step * (1 - 2 * back) if step.is_static else maximum(step * (1 - 2 * back), 1)
    count = ceil_divide((last - first) * (1 - 2 * back), size)
    low = least(count)
    return count if low is not None and low >= 0 else maximum(count, 0)


def _number(known: Known) -> IntExpr:
    if known.contents is None:
        raise NotYet("Range computed from data; its operands must be constants or follow from shapes")
    return IntExpr.of(known.contents.reshape(-1)[0])


def _float_count(start: Known, limit: Known, delta: Known) -> int:
    first, last, step = (k.constant.reshape(-1)[0] for k in (start, limit, delta) if k.constant is not None)
    if not step:
        raise ShapeMismatch("Range with a step of 0")
    return max(math.ceil(float(last - first) / float(step)), 0)


OP = Operator(
    "Range", infer, lower, dtypes=NUMBERS, evaluate=evaluate, shape_operands=(0, 1, 2), measure=measure
)
