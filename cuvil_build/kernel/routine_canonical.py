"""The canonical form of a routine, as `canonical` has it for nests: equal kernels become equal routines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.canonical import Canonical, buffer_text, expr_text, expressions, integers_of
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Local, Within
from cuvil_build.kernel.intern import Interner
from cuvil_build.kernel.nest import Axis
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
    statements,
)
from cuvil_build.kernel.routine import expressions as own_expressions


def canonicalise_routine(routine: Routine) -> Canonical:
    """Axes are named `i0`…; loops and locals keep the word that they are named after, with a number."""
    return _Canonicaliser(routine).run()


class _Canonicaliser:
    def __init__(self, routine: Routine) -> None:
        self._routine = routine
        self._statements = list(statements(routine.body))
        self._interner = Interner()
        self._dims: dict[IntExpr, str] = {}
        self._names: dict[str, str] = {a.name: f"i{n}" for n, a in enumerate(routine.axes)}
        self._symbols: dict[str, IntExpr] = {}
        self._buffers: dict[str, Buffer] = {}
        self._done: dict[int, Expr] = {}

    def run(self) -> Canonical:
        routine = self._routine
        for s in self._statements:
            if isinstance(s, (Let, For)):
                word = s.name.strip("%").rstrip("0123456789").rstrip("_")
                self._names[s.name] = f"{word}_{len(self._names) - len(routine.axes)}"
        self._name_dims()
        self._rename_buffers()
        axes = tuple(Axis(self._names[a.name], self._int(a.extent)) for a in routine.axes)
        temps = tuple(self._buffers[t.name] for t in routine.temps)
        body = self._block(routine.body)
        canonical = Routine(routine.anchor, axes, body, temps)
        lines = [routine.anchor, " ".join(f"{a.name}<{a.extent}" for a in axes), *map(buffer_text, temps)]
        self._seen: set[int] = set()
        lines += self._text(body)
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return Canonical(canonical, routine.buffers(), tuple(self._dims), digest)

    # Names --------------------------------------------------------------------------------------

    def _name_dims(self) -> None:
        routine = self._routine
        whole = [a.extent for a in routine.axes]
        whole += [d for buffer in (*routine.buffers(), *routine.temps) for d in buffer.shape]
        bounds = [p for s in self._statements if isinstance(s, For) for p in (s.start, s.stop)]
        whole += [b for b in bounds if isinstance(b, IntExpr) and not (b.symbols() & self._names.keys())]
        for expr in whole:
            if not expr.is_static:
                self._dims.setdefault(expr, f"d{len(self._dims)}")
        free = {s for i in self._integers() for s in i.symbols()} - self._names.keys()
        for name in sorted(free):
            self._dims.setdefault(IntExpr.of(name), f"d{len(self._dims)}")
        self._symbols = {old: IntExpr.of(new) for old, new in self._names.items()}
        for expr, dim in self._dims.items():
            if str(expr) in expr.symbols():
                self._symbols[str(expr)] = IntExpr.of(dim)

    def _integers(self) -> Iterable[IntExpr]:
        for s in self._statements:
            places: tuple[Place, ...] = ()
            if isinstance(s, Store):
                places = s.index
            elif isinstance(s, For):
                places = (s.start, s.stop)
            yield from (p for p in places if isinstance(p, IntExpr))
            for expr in expressions(own_expressions(s)):
                yield from integers_of(expr)

    def _rename_buffers(self) -> None:
        written = self._routine.written()
        for n, buffer in enumerate(self._routine.buffers()):
            role = "output" if buffer.name in written else "input"
            self._buffers[buffer.name] = self._renamed(buffer, f"b{n}", role)
        for n, buffer in enumerate(self._routine.temps):
            self._buffers[buffer.name] = self._renamed(buffer, f"t{n}", "temp")

    def _renamed(self, buffer: Buffer, name: str, role: str) -> Buffer:
        return replace(buffer, name=name, shape=tuple(map(self._int, buffer.shape)), role=role)

    # Rebuilding ---------------------------------------------------------------------------------

    def _int(self, expr: IntExpr) -> IntExpr:
        whole = self._dims.get(expr)
        return IntExpr.of(whole) if whole else expr.substitute(self._symbols)

    def _place(self, place: Place) -> Place:
        return self._int(place) if isinstance(place, IntExpr) else self._expr(place)

    def _expr(self, expr: Expr) -> Expr:
        found = self._done.get(id(expr))
        if found is None:
            found = self._done[id(expr)] = self._interner.unique(self._rebuilt(expr))
        return found

    def _rebuilt(self, expr: Expr) -> Expr:
        if isinstance(expr, Const):
            return expr
        if isinstance(expr, Local):
            return Local(self._names[expr.name], expr.dtype)
        if isinstance(expr, IndexValue):
            return IndexValue(self._int(expr.index), expr.dtype)
        if isinstance(expr, Load):
            return Load(self._buffers[expr.buffer.name], tuple(map(self._place, expr.index)))
        if isinstance(expr, Apply):
            return Apply(expr.function, tuple(map(self._expr, expr.args)), expr.dtype)
        if isinstance(expr, Cast):
            return Cast(self._expr(expr.value), expr.dtype)
        conditions = tuple((self._int(a), self._int(b), self._int(c)) for a, b, c in expr.conditions)
        return Within(conditions, self._expr(expr.value), self._expr(expr.otherwise))

    def _block(self, body: Iterable[Statement]) -> tuple[Statement, ...]:
        return tuple(map(self._statement, body))

    def _statement(self, s: Statement) -> Statement:
        if isinstance(s, Let):
            return Let(self._names[s.name], self._expr(s.value))
        if isinstance(s, Set):
            return Set(self._names[s.name], self._expr(s.value))
        if isinstance(s, Store):
            index = tuple(map(self._place, s.index))
            return Store(self._buffers[s.buffer.name], index, self._expr(s.value))
        if isinstance(s, For):
            start, stop = self._place(s.start), self._place(s.stop)
            return For(self._names[s.name], start, stop, self._block(s.body))
        if isinstance(s, While):
            return While(self._expr(s.condition), self._block(s.body))
        return When(self._expr(s.condition), self._block(s.then), self._block(s.otherwise))

    # Text ---------------------------------------------------------------------------------------

    def _text(self, body: Iterable[Statement]) -> Iterable[str]:
        """Every part of every expression once, and every statement."""
        for s in body:
            for expr in expressions(own_expressions(s)):
                number = self._interner.number(expr)
                if number not in self._seen:
                    self._seen.add(number)
                    yield f"e{number} = {expr_text(expr, self._interner)}"
            if isinstance(s, (Let, Set)):
                yield f"{type(s).__name__} {s.name} e{self._interner.number(s.value)}"
            elif isinstance(s, Store):
                index = ", ".join(map(self._place_text, s.index))
                yield f"{buffer_text(s.buffer)}[{index}] = e{self._interner.number(s.value)}"
            elif isinstance(s, For):
                yield f"for {s.name} {self._place_text(s.start)} .. {self._place_text(s.stop)}"
                yield from (*self._text(s.body), "end")
            elif isinstance(s, While):
                yield f"while e{self._interner.number(s.condition)}"
                yield from (*self._text(s.body), "end")
            else:
                yield f"when e{self._interner.number(s.condition)}"
                yield from (*self._text(s.then), "otherwise", *self._text(s.otherwise), "end")

    def _place_text(self, place: Place) -> str:
        return str(place) if isinstance(place, IntExpr) else f"e{self._interner.number(place)}"
