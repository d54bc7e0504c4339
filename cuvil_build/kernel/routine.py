"""A routine: a kernel of plain statements, for what no iteration space expresses.

Sorting, selecting, scattering, suppressing and tree walks decide where they read and write while they run.
A routine runs its `body` once for each point of its `axes`, which are independent of each other: chunks that
any thread may take. Inside, statements are ordinary scalar code over `kernel.expr` expressions, in which
`Local` reads a variable and the loop variable of a `For` is a symbol of index expressions. Example, the
positions of the elements of x[n] that aren't zero:

    Let     count    0 (int64)
    For     i        0 .. n
      If    x[i] != 0
        Store  y[count]  i
        Set    count     count + 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Union

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Buffer, Expr
from cuvil_build.kernel.nest import Axis, loads

Place = Union[IntExpr, Expr]
"""An index, or the bound of a loop: an integer expression over axes, dims and loop variables, or an int64
expression computed from loads and locals."""


@dataclass(frozen=True, slots=True)
class Let:
    """A new variable with its first value; it lives to the end of the block that it stands in."""

    name: str
    """Unique in the routine."""
    value: Expr


@dataclass(frozen=True, slots=True)
class Set:
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    buffer: Buffer
    index: tuple[Place, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class For:
    """`for (name = start; name < stop; name++)`: `name` is a symbol of index expressions inside. Both
    bounds are computed once."""

    name: str
    start: Place
    stop: Place
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class While:
    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class When:
    """`if`."""

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


Statement = Union[Let, Set, Store, For, While, When]


@dataclass(frozen=True, slots=True)
class Routine:
    anchor: str
    """`scatter`, `sort`, `loop`, or another of `kernel.nest.ANCHORS`."""
    axes: tuple[Axis, ...]
    """Independent points, by the author's word: no point may read or write what another one writes."""
    body: tuple[Statement, ...]
    temps: tuple[Buffer, ...] = ()
    """Memory (role `temp`) private to one point, not initialised; it goes to the thread's scratch."""
    nodes: tuple[str, ...] = ()

    def buffers(self) -> tuple[Buffer, ...]:
        """External buffers, each once, in order of their first use."""
        found: dict[str, Buffer] = {}
        for buffer in _buffers(self.body):
            if buffer.role != "temp":
                found.setdefault(buffer.name, buffer)
        return tuple(found.values())

    def written(self) -> frozenset[str]:
        """Names of the buffers that it stores to."""
        return frozenset(s.buffer.name for s in statements(self.body) if isinstance(s, Store))


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Every statement, outer ones first."""
    for statement in body:
        yield statement
        if isinstance(statement, (For, While)):
            yield from statements(statement.body)
        elif isinstance(statement, When):
            yield from statements(statement.then)
            yield from statements(statement.otherwise)


def expressions(statement: Statement) -> tuple[Expr, ...]:
    """The expressions of a statement itself, not of its blocks."""
    if isinstance(statement, (Let, Set)):
        return (statement.value,)
    if isinstance(statement, Store):
        return (*(i for i in statement.index if not isinstance(i, IntExpr)), statement.value)
    if isinstance(statement, For):
        return tuple(p for p in (statement.start, statement.stop) if not isinstance(p, IntExpr))
    return (statement.condition,)


def _buffers(body: Sequence[Statement]) -> Iterator[Buffer]:
    for statement in statements(body):
        for expr in expressions(statement):
            for load in loads(expr):
                yield load.buffer
        if isinstance(statement, Store):
            yield statement.buffer
