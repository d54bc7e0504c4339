"""TopK: the largest or smallest numbers along an axis, with their positions."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.routine_writer import load, number
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call
from cuvil_build.ops.shapes import NUMBERS, integers, normal_axis
from cuvil_build.ops.sorting import Heap


def infer(
    ctx: InferContext, x: Known, k: Known, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Known, Known]:
    along = normal_axis(axis, x.rank)
    (count,) = integers(k, "k of TopK")
    ctx.require_at_most(count, x.shape[along], "k of TopK")
    shape = (*x.shape[:along], count, *x.shape[along + 1 :])
    return Known(x.dtype, shape), Known(INT64, shape)


def lower(
    build: NestBuilder, x: View, k: View, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[View, View]:
    """A heap of the best so far takes n log k steps; the result is sorted also where it need not be."""
    along = normal_axis(axis, x.rank)
    x = build.operand(x)
    shape = build.results[0][1]
    count, extent = shape[along], x.shape[along]
    values, positions = build.result(0, x.dtype, shape), build.result(1, INT64, shape)
    with build.routine("sort", (*x.shape[:along], *x.shape[along + 1 :])) as r:
        before, after = r.point[:along], r.point[along:]
        better = "gt" if largest else "lt"

        def comes_before(value: Expr, position: Expr, other: Expr, its: Expr) -> Expr:
            tie = call("and", call("eq", value, other), call("lt", position, its))
            return call("or", call(better, value, other), tie)

        heap = Heap(r.temp(x.dtype, count), r.temp(INT64, count), comes_before)
        with r.loop(count) as step:
            r.store(heap.values, (step,), x.at((*before, step, *after)))
            r.store(heap.positions, (step,), step)
        heap.order(r, count)
        with r.loop(extent, start=count) as step:
            value = r.let(x.at((*before, step, *after)), "value")
            # later positions lose against equal values; without a place there is nothing to compare with
            beats = call(better, value, load(heap.values, 0))
            with r.when(beats if build.low(count) else call("and", call("gt", number(count), 0), beats)):
                heap.sink(r, 0, count, value, number(step))
        heap.sort(r, count)
        with r.loop(count) as step:
            r.store(values, (*before, step, *after), load(heap.values, step))
            r.store(positions, (*before, step, *after), load(heap.positions, step))
    return of_buffer(values), of_buffer(positions)


OP = Operator("TopK", infer, lower, kind="sort", dtypes=NUMBERS, shape_operands=(1,))
