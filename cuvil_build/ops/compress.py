"""Compress: the elements or slices that a list of bools chooses."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import product
from cuvil_build.errors import ShapeMismatch
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.routine_writer import load, number, symbol
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, cast
from cuvil_build.ops.shapes import ANY, normal_axis


def infer(ctx: InferContext, x: Known, condition: Known, *, axis: int | None = None) -> Known:
    if condition.rank != 1:
        raise ShapeMismatch(f"Compress needs a list of bools, not a tensor of rank {condition.rank}")
    along = None if axis is None else normal_axis(axis, x.rank)
    extent = product(x.shape) if along is None else x.shape[along]
    ctx.require_at_most(condition.shape[0], extent, "condition of Compress")
    count = ctx.measured("count", 0, condition.shape[0])
    if along is None:
        return Known(x.dtype, (count,))
    return Known(x.dtype, (*x.shape[:along], count, *x.shape[along + 1 :]))


def measure(build: NestBuilder, x: View, condition: View, *, axis: int | None = None) -> View:
    flags = build.map(lambda e: cast(e, INT64), condition)
    return build.reduce("sum", flags, [0], keepdims=False)


def lower(build: NestBuilder, x: View, condition: View, *, axis: int | None = None) -> View:
    condition = build.operand(condition)
    if axis is None:
        return _lower_flat(build, x, condition)
    along = normal_axis(axis, x.rank)
    source = build.buffer(x)
    shape = build.results[0][1]
    positions = build.allocate(INT64, (shape[along],))
    with build.routine("loop") as r:
        count = r.let(0, "count")
        with r.loop(condition.shape[0]) as step, r.when(condition.at((step,))):
            r.store(positions, (symbol(count),), step)
            r.increase(count)

    def at(index: Index) -> Expr:
        return load(source, *index[:along], load(positions, index[along]), *index[along + 1 :])

    return build.compute(shape, x.dtype, at)


def _lower_flat(build: NestBuilder, x: View, condition: View) -> View:
    """Elements in row-major order, as many as there are bools."""
    x = build.operand(x)
    result = build.result(0, *build.results[0])
    with build.routine("loop") as r:
        count, flat = r.let(0, "count"), r.let(0, "flat")
        with r.loops(x.shape) as index:
            is_there = call("lt", flat, number(condition.shape[0]))
            with r.when(call("and", is_there, condition.at((symbol(flat),)))):
                r.store(result, (symbol(count),), x.at(index))
                r.increase(count)
            r.increase(flat)
    return of_buffer(result)


OP = Operator("Compress", infer, lower, kind="gather", dtypes=ANY, measure=measure)
