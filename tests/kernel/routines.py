"""Routines that the tests of the kernel level share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cuvil_build.cuir.dtypes import BOOL, DTYPES, FLOAT32, INT64, DType
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Buffer, Const, apply
from cuvil_build.kernel.routine import Routine
from cuvil_build.kernel.routine_writer import RoutineWriter, load, number, symbol

Shape = Sequence[IntExpr | int | str]


def buffer(name: str, dtype: DType, *shape: IntExpr | int | str, role: str = "input") -> Buffer:
    dims = tuple(map(IntExpr.of, shape))
    return Buffer(name, dtype, dims, tuple(range(len(dims))), role)


def written(body: Callable[[RoutineWriter], None], anchor: str = "loop", extents: Shape = ()) -> Routine:
    found: list[Routine] = []
    with RoutineWriter(anchor, tuple(map(IntExpr.of, extents)), found.append) as r:
        body(r)
    return found[0]


def positions(dim: str = "n", source: str = "x", target: str = "y", word: str = "count") -> Routine:
    """Where x[n] isn't zero, and how many there are."""
    x, y = buffer(source, FLOAT32, dim), buffer(target, INT64, IntExpr.of(dim) + 1)

    def body(r: RoutineWriter) -> None:
        count = r.let(0, word)
        with r.loop(IntExpr.of(dim)) as k, r.when(apply("ne", load(x, k), Const(0.0, FLOAT32))):
            r.store(y, (symbol(count),), k)
            r.increase(count)
        r.store(y, (IntExpr.of(dim),), count)

    return written(body)


def sorted_rows(dtype: str = "float32") -> Routine:
    """Each row of x[rows, n] in order, by insertion into a temp."""
    x = buffer("x", DTYPES[dtype], "rows", "n")
    y = buffer("y", DTYPES[dtype], "rows", "n", role="output")

    def body(r: RoutineWriter) -> None:
        row = r.temp(DTYPES[dtype], IntExpr.of("n"))
        with r.loop(IntExpr.of("n")) as k:
            value = r.let(load(x, *r.point, k), "value")
            at = r.let(k, "at")
            before = apply("sub", at, number(1))
            is_inside = apply("gt", at, number(0))
            with r.repeat(apply("and", is_inside, apply("gt", load(row, before), value))):
                r.store(row, (at,), load(row, before))
                r.set(at, before)
            r.store(row, (at,), value)
        with r.loop(IntExpr.of("n")) as k:
            r.store(y, (*r.point, k), load(row, k))

    return written(body, "sort", ["rows"])


def mixed() -> Routine:
    """Everything else: a temp of bools, `otherwise`, shared parts, two axes, bounds that data decides."""
    x = buffer("x", INT64, "rows", "n")
    y = buffer("y", FLOAT32, "rows", 2, role="output")

    def body(r: RoutineWriter) -> None:
        row, column = r.point
        flags = r.temp(BOOL, 4)
        with r.loop(4) as k:
            r.store(flags, (k,), apply("lt", number(k), number(2)))
        first = load(x, row, 0)
        total = r.let(0.0, "total", FLOAT32)
        with r.loop(apply("min", first, number(IntExpr.of("n")))) as k:
            square = apply("mul", load(x, row, k), load(x, row, k))
            r.set(total, apply("add", total, Const(1.0, FLOAT32)))
            with r.when(apply("gt", square, number(20))):
                r.set(total, apply("sub", total, Const(0.25, FLOAT32)))
            with r.otherwise():
                r.set(total, apply("add", total, Const(0.5, FLOAT32)))
        with r.when(load(flags, column * 2)):
            r.set(total, apply("neg", total))
        r.store(y, (row, column), total)

    return written(body, "loop", ["rows", 2])
