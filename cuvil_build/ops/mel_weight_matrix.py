"""MelWeightMatrix: triangles over the bins of a spectrum, evenly spaced on the mel scale."""

from __future__ import annotations

import math

from cuvil_build.cuir.dtypes import FLOAT64, INT64
from cuvil_build.cuir.int_expr import IntExpr, maximum
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import integer
from cuvil_build.ops.cast import dtype_of_code
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import add, call, cast, div, exp, log, mul, select, sub
from cuvil_build.ops.shapes import ANY, one_integer

SCALE = 2595 / math.log(10)
"""Mels are 2595 * log10(1 + hertz / 700)."""


def infer(
    ctx: InferContext,
    bins: Known,
    length: Known,
    rate: Known,
    low: Known,
    high: Known,
    *,
    output_datatype: int = 1,
) -> Known:
    count, size = (_first(k, "sizes of MelWeightMatrix") for k in (bins, length))
    shape = (size // 2 + 1, count)
    if not (size.is_static and count.is_static):
        shape = ctx.measured("the bins of the spectrum"), ctx.measured("the bins of the result")
    elif size.value < 0 or count.value < 0:
        raise ShapeMismatch(f"MelWeightMatrix of {count} bins for a transform of length {size}")
    return Known(dtype_of_code(output_datatype), shape)


def measure(
    build: NestBuilder, bins: View, length: View, *operands: View, output_datatype: int = 1
) -> tuple[View, View]:
    def number(value: IntExpr) -> View:
        return build.scalar(maximum(value, 0))

    count, size = (_first(v, "sizes of MelWeightMatrix") for v in (bins, length))
    return number(size // 2 + 1), number(count)


def lower(
    build: NestBuilder,
    bins: View,
    length: View,
    rate: View,
    low: View,
    high: View,
    *,
    output_datatype: int = 1,
) -> View:
    dtype, shape = build.results[0]
    size = _first(length, "sizes of MelWeightMatrix")
    start, end, per_second = (cast(v.at((IntExpr.of(0),) * v.rank), FLOAT64) for v in (low, high, rate))

    def edge(index: Index) -> Expr:
        """The spectrum's bin that a triangle begins, peaks or ends in."""
        first, last = _mels(start), _mels(end)
        step = div(sub(last, first), integer(shape[1] + 2, FLOAT64))
        mels = add(mul(integer(index[0], FLOAT64), step), first)
        hertz = mul(sub(exp(div(mels, SCALE)), 1.0), 700.0)
        return cast(call("floor", div(mul(hertz, integer(size + 1, FLOAT64)), per_second)), INT64)

    edges = build.buffer(build.compute((shape[1] + 2,), INT64, edge))

    def at(index: Index) -> Expr:
        row = integer(index[0], INT64)
        left, peak, right = (load(edges, index[1] + n) for n in range(3))
        rising = _ratio(sub(row, left), sub(peak, left))
        rising = select(call("eq", peak, left), Const(1.0, FLOAT64), rising)
        falling = _ratio(sub(right, row), sub(right, peak))
        before = call("and", call("ge", row, left), call("le", row, peak))
        after = call("and", call("ge", row, peak), call("lt", row, right))
        value = select(after, falling, select(before, rising, 0.0))
        return cast(value, dtype)

    return build.compute(shape, dtype, at)


def _mels(hertz: Expr) -> Expr:
    return mul(log(add(div(hertz, 700.0), 1.0)), SCALE)


def _ratio(part: Expr, whole: Expr) -> Expr:
    return div(cast(part, FLOAT64), cast(whole, FLOAT64))


def _first(operand: Known | View, what: str) -> IntExpr:
    return one_integer(operand, what)


OP = Operator("MelWeightMatrix", infer, lower, dtypes=ANY, shape_operands=(0, 1), measure=measure)
