"""Runs lowered regions with numpy, point sets at a time: independent of schedules and printers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Buffer, Cast, Const, Expr, IndexValue, Load, Within
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Axis, Nest, Stage

Grid = dict[str, Any]
"""Axis name -> its values at each point of the iteration space, broadcastable."""
POISON = {"f": math.nan, "i": -77, "u": 77, "b": True}

_erf = np.vectorize(math.erf, otypes=[np.float64])

FUNCTIONS: dict[str, Any] = {
    "abs": np.abs,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": lambda x: _erf(x) if np.size(x) else x,
    "exp": np.exp,
    "floor": np.floor,
    "log": np.log,
    "neg": np.negative,
    "reciprocal": lambda x: 1 / x,
    "rint": np.rint,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "not": np.logical_not,
    "isnan": np.isnan,
    "bitnot": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "mod": np.mod,
    "fmod": np.fmod,
    "pow": np.power,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "select": np.where,
}
COMBINE = {"sum": (np.add, 0), "prod": (np.multiply, 1), "max": (np.maximum, None), "min": (np.minimum, None)}


def run_region(
    region: LoweredRegion, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> list[np.ndarray]:
    """The region's outputs; memory that no nest wrote stays poisoned."""
    memory = {b.name: np.asarray(arrays[b.name]) for b in region.inputs}
    for buffer in (*region.inner, *region.outputs):
        memory[buffer.name] = _fresh(buffer, sizes)
    with np.errstate(all="ignore"):
        for nest in region.nests:
            _Run(nest, memory, sizes).run()
    return [memory[b.name] for b in region.outputs]


def _fresh(buffer: Buffer, sizes: Mapping[str, int], leading: tuple[int, ...] = ()) -> np.ndarray:
    shape = leading + tuple(d.evaluate(sizes) for d in buffer.shape)
    return np.full(shape, POISON[buffer.dtype.numpy.kind], dtype=buffer.dtype.numpy)


class _Run:
    def __init__(self, nest: Nest, memory: dict[str, np.ndarray], sizes: Mapping[str, int]) -> None:
        self.nest = nest
        self.memory = memory
        self.sizes = dict(sizes)

    def run(self) -> None:
        steps = [a for a in self.nest.axes if a.name in self.nest.sequential]
        free = [a for a in self.nest.axes if a.name not in self.nest.sequential]
        for point in np.ndindex(*(self._extent(a) for a in steps)):
            for axis, value in zip(steps, point):
                self.sizes[axis.name] = int(value)
            self._stages(free)

    def _extent(self, axis: Axis) -> int:
        return axis.extent.evaluate(self.sizes)

    def _stages(self, outer: list[Axis]) -> None:
        leading = tuple(self._extent(a) for a in outer)
        temps: dict[str, np.ndarray] = {}
        for stage in self.nest.stages:
            if stage.target.role == "temp" and stage.target.name not in temps:
                temps[stage.target.name] = _fresh(stage.target, self.sizes, leading)
            self._stage(stage, outer, temps)

    def _stage(self, stage: Stage, outer: list[Axis], temps: dict[str, np.ndarray]) -> None:
        axes = [*outer, *stage.axes]
        shape = tuple(self._extent(a) for a in axes)
        self.grid: Grid = dict(self.sizes)
        for at, (axis, extent) in enumerate(zip(axes, shape)):
            self.grid[axis.name] = np.arange(extent).reshape([-1 if d == at else 1 for d in range(len(axes))])
        self.outer = [self.grid[a.name] for a in outer]
        self.temps = temps
        self.shape = shape
        self.memo: dict[int, Any] = {}
        value = np.broadcast_to(self._value(stage.value), shape).astype(stage.target.dtype.numpy)
        index = [np.broadcast_to(np.asarray(self._int(i)), shape) for i in stage.index]
        target = self.memory[stage.target.name] if stage.target.role != "temp" else temps[stage.target.name]
        if stage.target.role == "temp":
            index = [*(np.broadcast_to(o, shape) for o in self.outer), *index]
        for dim, entry in enumerate(index):
            assert entry.size == 0 or (entry.min() >= 0 and entry.max() < target.shape[dim]), (
                f"store to {stage.target.name} is out of bounds"
            )
        if stage.kind == "store":
            target[tuple(index)] = value
            return
        combine, neutral = COMBINE[stage.kind]
        if neutral is None:
            info: Any = np.finfo if target.dtype.kind == "f" else np.iinfo
            extreme = -np.inf if target.dtype.kind == "f" else info(target.dtype).min
            top = np.inf if target.dtype.kind == "f" else info(target.dtype).max
            neutral = extreme if stage.kind == "max" else top
        if stage.target.role != "temp":
            raise AssertionError("reductions combine into temps")
        wide = target.astype(np.float64) if target.dtype.kind == "f" else target.copy()
        wide[...] = neutral
        first = np.zeros(shape, dtype=np.int64)
        combine.at(wide[None], (first, *index), value)
        target[...] = wide

    def _int(self, expr: IntExpr) -> Any:
        return _evaluate(expr, self.grid)

    def _value(self, expr: Expr) -> Any:
        if id(expr) not in self.memo:
            self.memo[id(expr)] = self._compute(expr)
        return self.memo[id(expr)]

    def _compute(self, expr: Expr) -> Any:
        if isinstance(expr, Const):
            return np.asarray(expr.value, dtype=expr.dtype.numpy)
        if isinstance(expr, IndexValue):
            return np.asarray(self._int(expr.index), dtype=expr.dtype.numpy)
        if isinstance(expr, Cast):
            return _cast(self._value(expr.value), expr.dtype.numpy)
        if isinstance(expr, Load):
            return self._load(expr, None)
        if isinstance(expr, Within):
            return self._within(expr)
        args = [self._value(a) for a in expr.args]
        if expr.function == "div":
            return _divide(*args)
        assert len({a.dtype for a in args[1 if expr.function == "select" else 0 :]}) == 1, f"mixed: {expr}"
        return np.asarray(FUNCTIONS[expr.function](*args)).astype(expr.dtype.numpy)

    def _within(self, expr: Within) -> Any:
        holds = np.asarray(True)
        for low, index, high in expr.conditions:
            entry = np.asarray(self._int(index))
            holds = holds & (entry >= np.asarray(self._int(low))) & (entry < np.asarray(self._int(high)))
        outer_memo, outer_guard = self.memo, getattr(self, "guard", None)
        self.memo = {}
        self.guard = holds if outer_guard is None else outer_guard & holds
        value = self._value(expr.value)
        self.memo, self.guard = outer_memo, outer_guard
        return np.where(holds, value, self._value(expr.otherwise))

    guard: Any = None

    def _load(self, expr: Load, _: Any) -> Any:
        entries = [self._int(i) if isinstance(i, IntExpr) else self._value(i) for i in expr.index]
        is_temp = expr.buffer.role == "temp"
        source = self.temps[expr.buffer.name] if is_temp else self.memory[expr.buffer.name]
        index = [*(self.outer if is_temp else ()), *entries]
        if not index:
            return source[()] if source.ndim == 0 else source
        arrays = np.broadcast_arrays(*index)
        guard = np.asarray(True if self.guard is None else self.guard)
        arrays = [np.broadcast_to(a, np.broadcast_shapes(a.shape, guard.shape)) for a in arrays]
        guard = np.broadcast_to(guard, arrays[0].shape)
        safe = []
        for dim, entry in enumerate(arrays):
            inside = (entry >= 0) & (entry < source.shape[dim])
            assert 0 in self.shape or bool(np.all(inside | ~guard)), (
                f"load of {expr.buffer.name} is out of bounds in axis {dim}"
            )
            safe.append(np.where(guard & inside, entry, 0))
        if 0 in source.shape:
            return np.zeros(arrays[0].shape, dtype=source.dtype)
        return source[tuple(safe)]


def _cast(value: Any, dtype: np.dtype[Any]) -> Any:
    return value != 0 if dtype.kind == "b" else np.asarray(value).astype(dtype)


def _divide(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return a / b
    magnitude = np.abs(a) // np.abs(b)
    return np.where((a < 0) == (b < 0), magnitude, -magnitude).astype(a.dtype)


def _evaluate(expr: IntExpr, grid: Grid) -> Any:
    """Like `IntExpr.evaluate`, on arrays."""
    total: Any = 0
    for monomial, number in expr.terms:
        term: Any = number
        for atom, power in monomial:
            if hasattr(atom, "name"):
                value = grid[atom.name]
            else:
                args = [_evaluate(a, grid) for a in atom.args]
                value = _ATOMS[atom.function](args)
            term = term * value**power
        total = total + term
    return total


_ATOMS: dict[str, Any] = {
    "floordiv": lambda args: np.floor_divide(args[0], args[1]),
    "mod": lambda args: np.mod(args[0], args[1]),
    "min": lambda args: _fold(np.minimum, args),
    "max": lambda args: _fold(np.maximum, args),
}


def _fold(function: Any, args: list[Any]) -> Any:
    result = args[0]
    for arg in args[1:]:
        result = function(result, arg)
    return result
