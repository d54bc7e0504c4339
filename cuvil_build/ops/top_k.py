"""TopK: the largest or smallest numbers along an axis, with their positions."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import ZERO, minimum
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.routine_writer import load, number, symbol
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call
from cuvil_build.ops.shapes import NUMBERS, normal_axis, one_integer
from cuvil_build.ops.sorting import Pairs

SPARE = 16
"""Room for more than the best, where these are few."""


def infer(
    ctx: InferContext, x: Known, k: Known, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Known, Known]:
    along = normal_axis(axis, x.rank)
    count = one_integer(k, "k of TopK")
    ctx.require_at_most(ZERO, count, "k of TopK")
    ctx.require_at_most(count, x.shape[along], "k of TopK")
    shape = (*x.shape[:along], count, *x.shape[along + 1 :])
    return Known(x.dtype, shape), Known(INT64, shape)


def lower(
    build: NestBuilder, x: View, k: View, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[View, View]:
    """The best so far, and behind them what may be better: sorted again whenever there is no more room.

    That takes n log k steps at most, far fewer where numbers come in no order. The result is sorted also
    where it need not be.
    """
    along = normal_axis(axis, x.rank)
    x = build.operand(x)
    shape = build.results[0][1]
    count, extent = shape[along], x.shape[along]
    values, positions = build.result(0, x.dtype, shape), build.result(1, INT64, shape)
    better = "gt" if largest else "lt"
    with build.routine("sort", (*x.shape[:along], *x.shape[along + 1 :])) as r:
        before, after = r.point[:along], r.point[along:]
        room = minimum(count * 2 + SPARE, extent)
        own, spare = ((r.temp(x.dtype, room), r.temp(INT64, room)) for _ in range(2))
        best = Pairs(*own, *spare, better)
        with r.loop(room) as step:
            r.store(best.values, (step,), x.at((*before, step, *after)))
            r.store(best.positions, (step,), step)
        size, taken, in_order = r.let(room, "size"), r.let(room, "taken"), r.let(0, "order")
        is_open = r.let(call("gt", number(count), 0), "open")
        with r.repeat(is_open):
            best.sort(r, symbol(size), in_order)
            with r.when(call("gt", in_order, 0)):
                best.join(r, count, symbol(size))
            r.set(in_order, count)
            worst = r.let(load(best.values, count - 1), "worst")
            r.set(size, count)
            with r.repeat(call("and", call("lt", taken, number(extent)), call("lt", size, number(room)))):
                value = r.let(x.at((*before, symbol(taken), *after)), "value")
                # later positions lose against equal values
                with r.when(call(better, value, worst)):
                    r.store(best.values, (size,), value)
                    r.store(best.positions, (size,), taken)
                    r.increase(size)
                r.increase(taken)
            r.set(is_open, call("gt", size, number(count)))
        with r.loop(count) as step:
            r.store(values, (*before, step, *after), load(best.values, step))
            r.store(positions, (*before, step, *after), load(best.positions, step))
    return of_buffer(values), of_buffer(positions)


OP = Operator("TopK", infer, lower, kind="sort", dtypes=NUMBERS, shape_operands=(1,))
