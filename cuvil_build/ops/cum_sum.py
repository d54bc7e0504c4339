"""CumSum and CumProd: running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable

from cuvil_build.cuir.int_expr import ONE, IntExpr, minimum
from cuvil_build.errors import NotYet
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr, apply
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import NUMBERS, integers, normal_axis


def infer(ctx: InferContext, x: Known, axis: Known, *, exclusive: int = 0, reverse: int = 0) -> Known:
    _axis(axis, x.rank)
    return Known(x.dtype, x.shape)


def _lower(function: str, start: int) -> Callable[..., View]:
    def lower(build: NestBuilder, x: View, axis: View, *, exclusive: int = 0, reverse: int = 0) -> View:
        """Each step adds to a whole row of the step before it, so that the last dim stays innermost."""
        along, last = _axis(axis, x.rank), x.rank - 1
        x = build.operand(x)
        result = build.result(0, *build.results[0])
        outer = [d for d in range(x.rank) if d not in (along, last)]
        row = [last] if last != along else []
        extent = x.shape[along]
        neutral = Const(start if not x.dtype.is_float else float(start), x.dtype)
        with build.routine("scan", [x.shape[d] for d in outer]) as r:

            def at(step: IntExpr, column: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
                entries = dict(zip((*outer, *row), (*r.point, *column)))
                entries[along] = extent - 1 - step if reverse else step
                return tuple(entries[d] for d in range(x.rank))

            with r.loop(minimum(extent, 1)) as first, r.loops([x.shape[d] for d in row]) as column:
                index = at(first, column)
                r.store(result, index, neutral if exclusive else x.at(index))
            with r.loop(extent, start=1) as step, r.loops([x.shape[d] for d in row]) as column:
                so_far: Expr = load(result, *at(step - 1, column))
                term = x.at(at(step - ONE if exclusive else step, column))
                r.store(result, at(step, column), apply(function, so_far, term))
        return of_buffer(result)

    return lower


def _axis(axis: Known | View, rank: int) -> int:
    (found,) = integers(axis, "axis")
    if not found.is_static:
        raise NotYet("an axis that is computed from data")
    return normal_axis(found.value, rank)


OPS = (
    Operator("CumSum", infer, _lower("add", 0), kind="scan", dtypes=NUMBERS, shape_operands=(1,)),
    Operator("CumProd", infer, _lower("mul", 1), kind="scan", dtypes=NUMBERS, shape_operands=(1,)),
)
