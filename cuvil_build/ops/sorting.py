"""Sorting in routines: stable merge sorts of numbers with their positions, and of positions alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Buffer, Expr, Local
from cuvil_build.kernel.routine_writer import Number, RoutineWriter, load, number
from cuvil_build.ops.scalar import add, call, cast, mul, select


@dataclass(frozen=True, slots=True)
class Pairs:
    """Values with their positions, and as much memory again."""

    values: Buffer
    positions: Buffer
    spare_values: Buffer
    spare_positions: Buffer
    function: str
    """`lt`: small values first; `gt`: large ones."""

    def sort(self, r: RoutineWriter, count: IntExpr, first: Number = 0) -> None:
        """Those from `first` on; equal values keep their order. Each two passes lead there and back."""
        there = (self.values, self.positions), (self.spare_values, self.spare_positions)
        width = r.let(1, "width")
        with r.repeat(call("lt", add(width, number(first)), number(count))):
            for source, target in (there, there[::-1]):
                start = r.let(first, "start")
                with r.repeat(call("lt", start, number(count))):
                    self._merge(r, source, target, (start, width, number(count)))
                    r.set(start, add(start, mul(width, 2)))
                r.set(width, mul(width, 2))

    def join(self, r: RoutineWriter, middle: IntExpr, count: IntExpr) -> None:
        """Two sorted parts, the first one of `middle` pairs; only as many come out as that has."""
        there = (self.values, self.positions), (self.spare_values, self.spare_positions)
        self._merge(r, *there, (r.let(0, "start"), r.let(middle, "width"), number(count)))
        with r.loop(middle) as step:
            for to, source in zip(*there):
                r.store(to, (step,), load(source, step))

    def _merge(
        self,
        r: RoutineWriter,
        source: tuple[Buffer, Buffer],
        target: tuple[Buffer, Buffer],
        run: tuple[Local, Local, Expr],
    ) -> None:
        """Which side is next is a number and no branch, as long as both have some."""
        start, width, count = run
        left, to = r.let(start, "left"), r.let(start, "to")
        middle = r.let(call("min", add(start, width), count), "middle")
        right = r.let(middle, "right")
        stop = r.let(call("min", add(start, mul(width, 2)), count), "stop")
        with r.repeat(call("and", call("lt", left, middle), call("lt", right, stop))):
            one = [r.let(load(b, left), "one") for b in source]
            other = [r.let(load(b, right), "other") for b in source]
            takes_right = r.let(call(self.function, other[0], one[0]), "takes")
            for buffer, a, b in zip(target, one, other):
                r.store(buffer, (to,), select(takes_right, b, a))
            r.set(right, add(right, cast(takes_right, INT64)))
            r.set(left, add(left, cast(call("not", takes_right), INT64)))
            r.increase(to)
        for side, end in ((left, middle), (right, stop)):
            with r.repeat(call("lt", side, end)):
                for buffer, own in zip(target, source):
                    r.store(buffer, (to,), load(own, side))
                r.increase(side)
                r.increase(to)


IsAfter = Callable[[RoutineWriter, Local, Local], Expr]
"""Writes what it needs to know whether the first of two positions belongs behind the second."""


def merge_sort(r: RoutineWriter, positions: Buffer, spare: Buffer, count: IntExpr, is_after: IsAfter) -> None:
    """The first `count` positions into an order in which none is after the next; equal ones keep theirs."""
    width = r.let(1, "width")
    with r.repeat(call("lt", width, number(count))):
        start = r.let(0, "start")
        with r.repeat(call("lt", start, number(count))):
            _merge(r, positions, spare, (start, width, number(count)), is_after)
            r.set(start, add(start, mul(width, 2)))
        with r.loop(count) as step:
            r.store(positions, (step,), load(spare, step))
        r.set(width, mul(width, 2))


def _merge(
    r: RoutineWriter,
    positions: Buffer,
    spare: Buffer,
    run: tuple[Local, Local, Expr],
    is_after: IsAfter,
) -> None:
    """Two runs of `width` positions from `start`, as far as there are so many."""
    start, width, count = run
    left = r.let(start, "left")
    middle = r.let(call("min", add(start, width), count), "middle")
    right = r.let(middle, "right")
    stop = r.let(call("min", add(start, mul(width, 2)), count), "stop")
    with r.loop(stop, start=start) as to:
        takes_right = r.let(call("ge", left, middle), "takes")
        with r.when(call("and", call("lt", left, middle), call("lt", right, stop))):
            one, other = r.let(load(positions, left), "one"), r.let(load(positions, right), "other")
            r.set(takes_right, is_after(r, one, other))
        with r.when(takes_right):
            r.store(spare, (to,), load(positions, right))
            r.increase(right)
        with r.otherwise():
            r.store(spare, (to,), load(positions, left))
            r.increase(left)
