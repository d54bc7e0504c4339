"""RoutineWriter: how operators write routines, block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Union

from cuvil_build.cuir.dtypes import INT64, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal
from cuvil_build.kernel.expr import TEMP, Buffer, Cast, Const, Expr, IndexValue, Load, Local, apply
from cuvil_build.kernel.nest import Axis, loads
from cuvil_build.kernel.routine import (
    For,
    Let,
    Place,
    Routine,
    Set,
    Statement,
    Store,
    When,
    While,
    expressions,
    statements,
)

Number = Union[Expr, IntExpr, int, float]
"""A number in any form: integers are int64 where nothing says otherwise."""


class RoutineWriter:
    """Statements go to the innermost open block.

    Used as `with build.routine("loop", extents) as r:`; the routine is complete at the end of the block.
    Indices are inside of their buffers by the writer's word: nothing checks or clips them when it runs.
    """

    def __init__(self, anchor: str, extents: Sequence[IntExpr], done: Callable[[Routine], None]) -> None:
        self._anchor = anchor
        self._axes = tuple(Axis(f"%i{n}", extent) for n, extent in enumerate(extents))
        self._done = done
        self._blocks: list[list[Statement]] = [[]]
        self._temps: list[Buffer] = []
        self._count = 0
        self.point: tuple[IntExpr, ...] = tuple(IntExpr.of(a.name) for a in self._axes)
        """The index of the point that the body computes."""

    def __enter__(self) -> RoutineWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            body = tuple(self._blocks[0])
            for statement in statements(body):
                for expr in expressions(statement):
                    if any(load.buffer.role == "pending" for load in loads(expr)):
                        raise Internal("a routine reads a reduction that is not in memory")
            self._done(Routine(self._anchor, self._axes, body, tuple(self._temps)))

    # Memory --------------------------------------------------------------------------------------

    def temp(self, dtype: DType, *shape: IntExpr | int) -> Buffer:
        """Memory of one point; its contents are anything at first."""
        name = f"%t{len(self._temps)}"
        dims = tuple(map(IntExpr.of, shape))
        buffer = Buffer(name, dtype, dims, tuple(range(len(dims))), TEMP)
        self._temps.append(buffer)
        return buffer

    def store(self, buffer: Buffer, index: Sequence[Place | int], value: Number) -> None:
        self._add(Store(buffer, places(index), _as(value, buffer.dtype)))

    # Variables -----------------------------------------------------------------------------------

    def let(self, value: Number, word: str = "v", dtype: DType | None = None) -> Local:
        """A new variable, int64 unless the value or `dtype` says otherwise."""
        expr = number(value) if dtype is None else _as(value, dtype)
        local = Local(self._fresh(word), expr.dtype)
        self._add(Let(local.name, expr))
        return local

    def set(self, local: Local, value: Number) -> None:
        self._add(Set(local.name, _as(value, local.dtype)))

    def increase(self, local: Local, by: Number = 1) -> None:
        self.set(local, apply("add", local, _as(by, local.dtype)))

    # Blocks --------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, stop: Place | int, start: Place | int = 0, word: str = "k") -> Iterator[IntExpr]:
        name = self._fresh(word)
        with self._block() as body:
            yield IntExpr.of(name)
        self._add(For(name, place(start), place(stop), tuple(body)))

    @contextmanager
    def loops(self, extents: Sequence[IntExpr]) -> Iterator[tuple[IntExpr, ...]]:
        """One loop in the other, the last one innermost."""
        names = [self._fresh("k") for _ in extents]
        with self._block() as body:
            yield tuple(map(IntExpr.of, names))
        inner: tuple[Statement, ...] = tuple(body)
        for name, extent in zip(reversed(names), reversed(extents)):
            inner = (For(name, IntExpr.of(0), extent, inner),)
        self._blocks[-1] += inner

    @contextmanager
    def repeat(self, condition: Expr) -> Iterator[None]:
        """`while`."""
        with self._block() as body:
            yield
        self._add(While(condition, tuple(body)))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        with self._block() as body:
            yield
        self._add(When(condition, tuple(body)))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Right after a `when`: where its condition does not hold."""
        before = self._blocks[-1].pop()
        assert isinstance(before, When) and not before.otherwise
        with self._block() as body:
            yield
        self._add(When(before.condition, before.then, tuple(body)))

    @contextmanager
    def _block(self) -> Iterator[list[Statement]]:
        self._blocks.append([])
        yield self._blocks[-1]
        self._blocks.pop()

    def _add(self, statement: Statement) -> None:
        self._blocks[-1].append(statement)

    def _fresh(self, word: str) -> str:
        self._count += 1
        return f"%{word}{self._count - 1}"


def number(value: Number) -> Expr:
    """As an expression; integers are int64."""
    if isinstance(value, IntExpr):
        return Const(value.value, INT64) if value.is_static else IndexValue(value)
    if isinstance(value, (int, float)):
        return Const(int(value), INT64)
    return value


def symbol(local: Local) -> IntExpr:
    """An int64 variable that is never negative, for use in integer expressions."""
    assert local.dtype == INT64, local
    return IntExpr.of(local.name)


def load(buffer: Buffer, *index: Place | int) -> Load:
    return Load(buffer, places(index))


def place(value: Place | int) -> Place:
    return IntExpr.of(value) if isinstance(value, int) else value


def places(index: Sequence[Place | int]) -> tuple[Place, ...]:
    return tuple(map(place, index))


def _as(value: Number, dtype: DType) -> Expr:
    """With a dtype: plain numbers take it, expressions must have it but for the width of integers."""
    if isinstance(value, (int, float)):
        return Const(
            bool(value) if dtype.kind == "bool" else float(value) if dtype.is_float else value, dtype
        )
    expr = number(value)
    return expr if expr.dtype == dtype else Cast(expr, dtype)
