"""TopK: the largest or smallest numbers along an axis, with their positions."""

from __future__ import annotations

from collections.abc import Callable

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Expr
from cuvil_build.kernel.routine_writer import RoutineWriter, load, number
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call
from cuvil_build.ops.shapes import NUMBERS, integers, normal_axis
from cuvil_build.ops.sorting import Heap, Pairs

Element = Callable[[IntExpr], Expr]


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
    """Of many numbers, a heap of the best so far finds a few; most of them are found by sorting all. The
    result is sorted also where it need not be."""
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

        def element(step: IntExpr) -> Expr:
            return x.at((*before, step, *after))

        is_most = _is_most(count, extent)
        room = count if is_most is False else extent
        heap = Heap(r.temp(x.dtype, room), r.temp(INT64, room), comes_before)
        if is_most is False:
            _select(r, heap, element, count, extent, better)
        else:
            pairs = Pairs(heap.values, heap.positions, r.temp(x.dtype, room), r.temp(INT64, room), better)
            if is_most:
                _sort(r, pairs, element, extent)
            else:
                with r.when(call("ge", number(count * 2), number(extent))):
                    _sort(r, pairs, element, extent)
                with r.otherwise():
                    _select(r, heap, element, count, extent, better)
        with r.loop(count) as step:
            r.store(values, (*before, step, *after), load(heap.values, step))
            r.store(positions, (*before, step, *after), load(heap.positions, step))
    return of_buffer(values), of_buffer(positions)


def _is_most(count: IntExpr, extent: IntExpr) -> bool | None:
    """Whether it is at least half of the numbers; None where the dims don't say it."""
    if not (count.is_static and extent.is_static):
        return None
    return 2 * count.value >= extent.value


def _sort(r: RoutineWriter, pairs: Pairs, element: Element, extent: IntExpr) -> None:
    _filled(r, pairs.values, pairs.positions, element, extent)
    pairs.sort(r, extent)


def _select(
    r: RoutineWriter, heap: Heap, element: Element, count: IntExpr, extent: IntExpr, better: str
) -> None:
    _filled(r, heap.values, heap.positions, element, count)
    heap.order(r, count)
    with r.loop(extent, start=count) as step:
        value = r.let(element(step), "value")
        # later positions lose against equal values; without a place there is nothing to compare with
        beats = call("and", call("gt", number(count), 0), call(better, value, load(heap.values, 0)))
        with r.when(beats):
            heap.sink(r, 0, count, value, number(step))
    heap.sort(r, count)


def _filled(r: RoutineWriter, values: Buffer, positions: Buffer, element: Element, count: IntExpr) -> None:
    with r.loop(count) as step:
        r.store(values, (step,), element(step))
        r.store(positions, (step,), step)


OP = Operator("TopK", infer, lower, kind="sort", dtypes=NUMBERS, shape_operands=(1,))
