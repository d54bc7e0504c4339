"""Sorting in routines: a heap that keeps the best of many, and a stable merge sort of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cuvil_build.cuir.dtypes import INT64
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Buffer, Expr, Local
from cuvil_build.kernel.routine import Place
from cuvil_build.kernel.routine_writer import Number, RoutineWriter, load, number
from cuvil_build.ops.scalar import add, call, cast, mul, select

Before = Callable[[Expr, Expr, Expr, Expr], Expr]
"""`before(value, position, other value, other position)`: whether the first comes first in the result."""


@dataclass(frozen=True, slots=True)
class Heap:
    """Values with their positions; the one that comes last is on top."""

    values: Buffer
    positions: Buffer
    before: Before

    def sink(self, r: RoutineWriter, hole: Number, size: Number, value: Expr, position: Expr) -> None:
        """Put a pair where the heap has a hole, below of which all is in order.

        Which child goes up is a number and no branch, which nothing could predict.
        """
        at = r.let(hole, "hole")
        child = r.let(add(mul(at, 2), 1), "child")
        with r.repeat(call("lt", add(child, 1), number(size))):
            left, right = self.pair(r, child), self.pair(r, add(child, 1))
            takes_right = r.let(self.before(*left, *right), "takes")
            below = [r.let(select(takes_right, b, a), "below") for a, b in zip(left, right)]
            r.set(child, add(child, cast(takes_right, INT64)))
            with r.when(self.before(value, position, *below)):
                self._move(r, at, below)
                r.set(at, child)
                r.set(child, add(mul(child, 2), 1))
            with r.otherwise():
                r.set(child, number(size))
        with r.when(call("lt", child, number(size))):
            last = self.pair(r, child)
            with r.when(self.before(value, position, *last)):
                self._move(r, at, last)
                r.set(at, child)
        self._move(r, at, (value, position))

    def _move(self, r: RoutineWriter, to: Expr, pair: Sequence[Expr]) -> None:
        r.store(self.values, (to,), pair[0])
        r.store(self.positions, (to,), pair[1])

    def order(self, r: RoutineWriter, size: IntExpr) -> None:
        """Any pairs become a heap."""
        with r.loop(size // 2) as step:
            top = size // 2 - 1 - step
            self.sink(r, top, size, *self.pair(r, top))

    def sort(self, r: RoutineWriter, size: IntExpr) -> None:
        """The heap becomes a list, first ones first."""
        with r.loop(size - 1) as step:
            last = size - 1 - step
            value, position = self.pair(r, last)
            r.store(self.values, (last,), load(self.values, 0))
            r.store(self.positions, (last,), load(self.positions, 0))
            self.sink(r, 0, last, value, position)

    def pair(self, r: RoutineWriter, at: Place) -> tuple[Local, Local]:
        value = r.let(load(self.values, at), "value")
        return value, r.let(load(self.positions, at), "position")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Values with their positions, and as much memory again."""

    values: Buffer
    positions: Buffer
    spare_values: Buffer
    spare_positions: Buffer
    function: str
    """`lt`: small values first; `gt`: large ones."""

    def sort(self, r: RoutineWriter, count: IntExpr) -> None:
        """Equal values keep their order. Runs double with every pass, there and back again."""
        there = (self.values, self.positions), (self.spare_values, self.spare_positions)
        width = r.let(1, "width")
        with r.repeat(call("lt", width, number(count))):
            for source, target in (there, there[::-1]):
                start = r.let(0, "start")
                with r.repeat(call("lt", start, number(count))):
                    self._merge(r, source, target, (start, width, number(count)))
                    r.set(start, add(start, mul(width, 2)))
                r.set(width, mul(width, 2))

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
