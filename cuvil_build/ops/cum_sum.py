"""CumSum and CumProd: running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ONE, IntExpr, minimum
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.kernel.expr import Buffer, Const, Expr, apply
from cuvil_build.kernel.routine_writer import RoutineWriter, load, number
from cuvil_build.kernel.view import of_buffer
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call
from cuvil_build.ops.shapes import NUMBERS, normal_axis, one_integer


def infer(ctx: InferContext, x: Known, axis: Known, *, exclusive: int = 0, reverse: int = 0) -> Known:
    found = _axis(axis)
    if found.is_static:
        normal_axis(found.value, x.rank)
    else:
        ctx.require_at_most(IntExpr.of(-x.rank), found, "axis")
        ctx.require_at_most(found, IntExpr.of(x.rank - 1), "axis")
    return Known(x.dtype, x.shape)


def _axis(axis: Known | View) -> IntExpr:
    return one_integer(axis, "axis")


def _lower(function: str, start: int) -> Callable[..., View]:
    def lower(build: NestBuilder, x: View, axis: View, *, exclusive: int = 0, reverse: int = 0) -> View:
        chosen = _axis(axis)
        x = build.operand(x)
        neutral = Const(start if not x.dtype.is_float else float(start), x.dtype)
        scan = _Scan(x, build.result(0, *build.results[0]), function, neutral, bool(exclusive), bool(reverse))
        if chosen.is_static:
            along = normal_axis(chosen.value, x.rank)
            with build.routine("scan", [x.shape[d] for d in scan.outer(along)]) as r:
                scan.write(r, along, r.point)
            return of_buffer(scan.result)
        with build.routine("scan") as r:
            for along in range(x.rank):
                is_it = call("or", _equal(chosen, along), _equal(chosen, along - x.rank))
                with r.when(is_it), r.loops([x.shape[d] for d in scan.outer(along)]) as point:
                    scan.write(r, along, point)
        return of_buffer(scan.result)

    return lower


def _equal(left: IntExpr, right: int) -> Expr:
    return call("eq", number(left), right)


@dataclass(frozen=True, slots=True)
class _Scan:
    x: View
    result: Buffer
    function: str
    neutral: Const
    exclusive: bool
    reverse: bool

    def outer(self, along: int) -> list[int]:
        """Dims of independent points: all but the axis and the last dim."""
        return [d for d in range(self.x.rank) if d not in (along, self.x.rank - 1)]

    def write(self, r: RoutineWriter, along: int, point: tuple[IntExpr, ...]) -> None:
        """Each step adds to a whole row of the step before it, so that the last dim stays innermost."""
        x, last = self.x, self.x.rank - 1
        row = [last] if last != along else []
        extent = x.shape[along]

        def at(step: IntExpr, column: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
            entries = dict(zip((*self.outer(along), *row), (*point, *column)))
            entries[along] = extent - 1 - step if self.reverse else step
            return tuple(entries[d] for d in range(x.rank))

        with r.loop(minimum(extent, 1)) as first, r.loops([x.shape[d] for d in row]) as column:
            index = at(first, column)
            r.store(self.result, index, self.neutral if self.exclusive else x.at(index))
        with r.loop(extent, start=1) as step, r.loops([x.shape[d] for d in row]) as column:
            so_far: Expr = load(self.result, *at(step - 1, column))
            term = x.at(at(step - ONE if self.exclusive else step, column))
            r.store(self.result, at(step, column), apply(self.function, so_far, term))


OPS = (
    Operator("CumSum", infer, _lower("add", 0), kind="scan", dtypes=NUMBERS, shape_operands=(1,)),
    Operator("CumProd", infer, _lower("mul", 1), kind="scan", dtypes=NUMBERS, shape_operands=(1,)),
)
