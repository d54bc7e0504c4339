"""Runs routines statement by statement on numpy scalars: the yardstick of their emitted kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Local
from cuvil_build.kernel.routine import For, Let, Place, Routine, Set, Statement, Store, When, While

_STEPS = 10_000_000
"""Loops that end take fewer in any test."""


def interpret_routine(
    routine: Routine,
    arrays: Mapping[str, np.ndarray],
    dims: Mapping[str, int],
    functions: Mapping[str, Callable[..., Any]],
) -> None:
    """Run a routine in place; every index must be inside of its buffer."""
    with np.errstate(all="ignore"):
        _Interpreter(routine, arrays, dims, functions).run()


class _Interpreter:
    def __init__(
        self,
        routine: Routine,
        arrays: Mapping[str, np.ndarray],
        dims: Mapping[str, int],
        functions: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._routine = routine
        self._arrays = dict(arrays)
        self._dims = dims
        self._functions = functions
        self._integers: dict[str, int] = {}
        """Dims, axes, loop variables, and int64 locals."""
        self._locals: dict[str, Any] = {}
        self._steps = 0

    def run(self) -> None:
        axes = self._routine.axes
        extents = [range(a.extent.evaluate(self._dims)) for a in axes]
        for point in itertools.product(*extents):
            self._integers = {**self._dims, **{a.name: n for a, n in zip(axes, point)}}
            self._locals = {}
            for temp in self._routine.temps:
                shape = [d.evaluate(self._dims) for d in temp.shape]
                self._arrays[temp.name] = _uninitialised(shape, temp.dtype.numpy)
            self._block(self._routine.body)

    # Statements ---------------------------------------------------------------------------------

    def _block(self, body: Iterable[Statement]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, s: Statement) -> None:
        self._steps += 1
        if self._steps > _STEPS:
            raise Internal(f"a {self._routine.anchor} routine does not end")
        if isinstance(s, Let):
            self._assign(s.name, self._value(s.value))
        elif isinstance(s, Set):
            if s.name not in self._locals:
                raise Internal(f"'{s.name}' is set before it is there")
            self._assign(s.name, self._value(s.value))
        elif isinstance(s, Store):
            value = self._value(s.value)
            self._arrays[s.buffer.name][self._index(s.buffer, s.index)] = value
        elif isinstance(s, For):
            start, stop = self._place(s.start), self._place(s.stop)
            for step in range(start, stop):
                self._integers[s.name] = step
                self._block(s.body)
        elif isinstance(s, While):
            while self._value(s.condition):
                self._block(s.body)
        else:
            assert isinstance(s, When)
            self._block(s.then if self._value(s.condition) else s.otherwise)

    def _assign(self, name: str, value: Any) -> None:
        self._locals[name] = value
        if value.dtype == np.int64:
            self._integers[name] = int(value)

    # Values -------------------------------------------------------------------------------------

    def _place(self, place: Place) -> int:
        return place.evaluate(self._integers) if isinstance(place, IntExpr) else int(self._value(place))

    def _index(self, buffer: Buffer, index: Iterable[Place]) -> tuple[int, ...]:
        found = tuple(map(self._place, index))
        for at, extent in zip(found, self._arrays[buffer.name].shape, strict=True):
            if not 0 <= at < extent:
                raise Internal(f"index {at} of {buffer.name} is outside of 0..{extent - 1}")
        return found

    def _value(self, expr: Expr) -> Any:
        if isinstance(expr, Const):
            return np.asarray(expr.value, expr.dtype.numpy)[()]
        if isinstance(expr, Local):
            return self._locals[expr.name]
        if isinstance(expr, IndexValue):
            return np.asarray(expr.index.evaluate(self._integers)).astype(expr.dtype.numpy)[()]
        if isinstance(expr, Load):
            return self._arrays[expr.buffer.name][self._index(expr.buffer, expr.index)]
        if isinstance(expr, Cast):
            return np.asarray(self._value(expr.value)).astype(expr.dtype.numpy)[()]
        if isinstance(expr, Apply):
            return self._applied(expr)
        inside = all(
            low.evaluate(self._integers) <= at.evaluate(self._integers) < high.evaluate(self._integers)
            for low, at, high in expr.conditions
        )
        return self._value(expr.value if inside else expr.otherwise)

    def _applied(self, expr: Apply) -> Any:
        """Choices and logic compute only the operands that count."""
        if expr.function == "select":
            condition, then, otherwise = expr.args
            return self._value(then if self._value(condition) else otherwise)
        first = self._value(expr.args[0])
        if expr.function in ("and", "or") and bool(first) == (expr.function == "or"):
            return np.bool_(first)
        rest = [self._value(a) for a in expr.args[1:]]
        result = self._functions[expr.function](first, *rest)
        return np.asarray(result).astype(expr.dtype.numpy)[()]


def _uninitialised(shape: list[int], dtype: np.dtype) -> np.ndarray:
    """What no sum or index should be mistaken for."""
    poison = {"i": -77, "u": 77, "b": True}.get(dtype.kind, np.nan)
    return np.full(shape, poison, dtype)
