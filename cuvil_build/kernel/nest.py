"""A nest: an iteration space, the buffers it touches and what each point computes.

A nest runs its `axes` as loops, outermost first, and at every point its stages one after the other. A
stage has further `axes` of its own. Stages talk through `temp` buffers, which live for one point of the
outer axes. Example, softmax over the last axis of x[n, j]:

    axes    n
    stage   j: max   -> t0[]      x[n, j]
    stage   j: store -> t1[j]     exp(x[n, j] - t0[])
    stage   j: sum   -> t2[]      t1[j]
    stage   j: store -> y[n, j]   t1[j] / t2[]

A convolution (`window`) or matrix product (`contraction`) has the outer axes of its output, one `sum`
stage over the reduced axes into a scalar temp, and one `store` stage without axes whose value is the
epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Expr, Load, Within

ANCHORS = "map reduce contraction window attention scan gather scatter copy sort loop host".split()
REDUCTIONS = frozenset("sum max min prod".split())


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop: its variable, a symbol of the index expressions, and its extent, from zero."""

    name: str
    extent: IntExpr


@dataclass(frozen=True, slots=True)
class Stage:
    """One loop nest within a point of the outer axes."""

    axes: tuple[Axis, ...]
    kind: str
    """`store`, or one of REDUCTIONS: combine into `target[index]`, which starts at the neutral value at
    the beginning of the stage."""
    target: Buffer
    index: tuple[IntExpr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Nest:
    anchor: str
    axes: tuple[Axis, ...]
    stages: tuple[Stage, ...]
    sequential: tuple[str, ...] = ()
    """Axes that carry a dependence by the author's own word (a scan's time axis); access relations
    must find them loop-carried too."""
    nodes: tuple[str, ...] = ()
    """Names of the graph nodes it computes, for comments and reports."""

    def buffers(self) -> tuple[Buffer, ...]:
        """External buffers (input, inner, output), each once, reads in order of use, then writes."""
        found: dict[str, Buffer] = {}
        for stage in self.stages:
            for load in loads(stage.value):
                if load.buffer.role != "temp":
                    found.setdefault(load.buffer.name, load.buffer)
        for stage in self.stages:
            if stage.target.role != "temp":
                found.setdefault(stage.target.name, stage.target)
        return tuple(found.values())

    def written(self) -> frozenset[str]:
        """Names of the buffers outside of the nest that it stores to."""
        return frozenset(s.target.name for s in self.stages if s.target.role != "temp")


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct operands, those within gather indices included."""
    if isinstance(expr, Apply):
        return expr.args
    if isinstance(expr, Cast):
        return (expr.value,)
    if isinstance(expr, Within):
        return (expr.value, expr.otherwise)
    if isinstance(expr, Load):
        return tuple(i for i in expr.index if not isinstance(i, IntExpr))
    return ()


def parts(expr: Expr) -> Iterator[Expr]:
    """Every part of an expression, itself first, depth first; shared ones once."""
    seen: set[int] = set()
    pending = [expr]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        pending += reversed(children(current))


def loads(expr: Expr) -> Iterator[Load]:
    """Every load of an expression, in the order of its parts."""
    return (part for part in parts(expr) if isinstance(part, Load))
