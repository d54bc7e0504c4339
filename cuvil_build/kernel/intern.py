"""Expressions as shared graphs: structurally equal parts become one object, each visited once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Local, Within

MapInt = Callable[[IntExpr], IntExpr]
MapBuffer = Callable[[Buffer], Buffer]


class Interner:
    """Rebuilds expressions with integers and buffers mapped; equal results are the same object.

    A chain of `x * f(x)` doubles as a tree with every link, so nothing here may walk trees.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Expr] = {}
        self._ids: dict[int, int] = {}

    def number(self, expr: Expr) -> int:
        """Of an interned expression, in order of first construction."""
        return self._ids[id(expr)]

    def unique(self, expr: Expr) -> Expr:
        """The object that stands for an expression whose operands are interned."""
        key = self._key(expr)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = expr
            self._ids[id(expr)] = len(self._ids)
        return found

    def rebuild(self, expr: Expr, map_int: MapInt, map_buffer: MapBuffer, done: dict[int, Expr]) -> Expr:
        """`done` keeps results by the id of the source; use one per pair of maps and keep sources alive."""
        found = done.get(id(expr))
        if found is None:
            found = done[id(expr)] = self.unique(self._rebuilt(expr, map_int, map_buffer, done))
        return found

    def _rebuilt(self, expr: Expr, map_int: MapInt, map_buffer: MapBuffer, done: dict[int, Expr]) -> Expr:
        if isinstance(expr, (Const, Local)):
            return expr
        if isinstance(expr, IndexValue):
            return IndexValue(map_int(expr.index), expr.dtype)
        if isinstance(expr, Load):
            index = tuple(
                map_int(i) if isinstance(i, IntExpr) else self.rebuild(i, map_int, map_buffer, done)
                for i in expr.index
            )
            return Load(map_buffer(expr.buffer), index)
        if isinstance(expr, Apply):
            args = tuple(self.rebuild(a, map_int, map_buffer, done) for a in expr.args)
            return Apply(expr.function, args, expr.dtype)
        if isinstance(expr, Cast):
            return Cast(self.rebuild(expr.value, map_int, map_buffer, done), expr.dtype)
        conditions = tuple((map_int(a), map_int(b), map_int(c)) for a, b, c in expr.conditions)
        value = self.rebuild(expr.value, map_int, map_buffer, done)
        return Within(conditions, value, self.rebuild(expr.otherwise, map_int, map_buffer, done))

    def _key(self, expr: Expr) -> tuple[Any, ...]:
        if isinstance(expr, Const):
            # repr keeps -0.0, nan and True apart from 0.0, nan and 1
            return ("const", repr(expr.value), expr.dtype.name)
        if isinstance(expr, IndexValue):
            return ("index", expr.index, expr.dtype.name)
        if isinstance(expr, Local):
            return ("local", expr.name, expr.dtype.name)
        if isinstance(expr, Load):
            index = tuple(i if isinstance(i, IntExpr) else self._ids[id(i)] for i in expr.index)
            kinds = tuple(isinstance(i, IntExpr) for i in expr.index)
            return ("load", expr.buffer.name, index, kinds)
        if isinstance(expr, Apply):
            return ("apply", expr.function, tuple(self._ids[id(a)] for a in expr.args), expr.dtype.name)
        if isinstance(expr, Cast):
            return ("cast", self._ids[id(expr.value)], expr.dtype.name)
        return ("within", expr.conditions, self._ids[id(expr.value)], self._ids[id(expr.otherwise)])
