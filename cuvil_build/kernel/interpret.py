"""Evaluates nests on numpy arrays, slowly and literally: the yardstick of every emitted kernel.

It shares nothing with schedules and loop programs. Axes without a declared dependence are evaluated as
whole arrays, sequential ones step by step; sums run in double precision.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cuvil_build.cuir.dtypes import DType, dtype_of_array
from cuvil_build.cuir.int_expr import Call, IntExpr, Symbol
from cuvil_build.errors import Internal
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Within
from cuvil_build.kernel.group import Group, Part
from cuvil_build.kernel.nest import Axis, Nest, Stage, loads
from cuvil_build.kernel.routine import Routine
from cuvil_build.kernel.routine_interpret import interpret_routine

Env = dict[str, Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def interpret(
    nest: Nest | Routine | Group, arrays: Mapping[str, np.ndarray], dims: Mapping[str, int]
) -> None:
    """Run a nest, routine or group in place on arrays of its buffers' logical shapes, by buffer name."""
    if isinstance(nest, Group):
        _interpret_group(nest, arrays, dims)
        return
    if isinstance(nest, Routine):
        interpret_routine(nest, arrays, dims, _FUNCTIONS)
        return
    _Interpreter(nest, dict(arrays), dims).run()


def _interpret_group(group: Group, arrays: Mapping[str, np.ndarray], dims: Mapping[str, int]) -> None:
    """Point by point, each with scratch of its own that holds nothing of use before it is written."""
    walk = None if group.walk is None else group.walk.axis
    for point in _points(group.axes, dims):
        own = {b.name: _unwritten(b, point) for b in group.scratch}
        own |= {p.block.name: _block(p, arrays, point) for p in group.parts}
        for values in _points([] if walk is None else [walk], point):
            values |= {name: place.evaluate(values) for name, place in group.places().items()}
            for nest, repeat in zip(group.nests, group.repeats(), strict=True):
                for sizes in _points([] if repeat is None else [repeat], values):
                    interpret(nest, {**arrays, **own}, sizes)


def _points(axes: Sequence[Axis], dims: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The sizes with each step of the axes."""
    for point in itertools.product(*(range(a.extent.evaluate(dims)) for a in axes)):
        yield {**dims, **{a.name: n for a, n in zip(axes, point)}}


def _block(part: Part, arrays: Mapping[str, np.ndarray], point: Mapping[str, int]) -> np.ndarray:
    extent = part.block.shape[part.dim].value
    start = part.start + point[part.axis] * extent
    return arrays[part.whole.name].take(range(start, start + extent), axis=part.dim)


def _unwritten(buffer: Buffer, dims: Mapping[str, int]) -> np.ndarray:
    shape = tuple(d.evaluate(dims) for d in buffer.shape)
    return np.full(shape, np.nan if buffer.dtype.numpy.kind == "f" else 1, buffer.dtype.numpy)


class _Interpreter:
    def __init__(self, nest: Nest, arrays: dict[str, np.ndarray], dims: Mapping[str, int]) -> None:
        self._nest = nest
        self._arrays = arrays
        self._dims = dims
        self._known: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._outer: tuple[Axis, ...] = tuple(a for a in nest.axes if a.name not in nest.sequential)
        self._outer_shape = tuple(self._size(a.extent) for a in self._outer)
        for stage in nest.stages:
            if stage.target.role == "temp":
                shape = self._outer_shape + tuple(self._size(d) for d in stage.target.shape)
                arrays[stage.target.name] = np.zeros(shape, stage.target.dtype.numpy)

    def run(self) -> None:
        steps = [self._nest_axis(name) for name in self._nest.sequential]
        for values in itertools.product(*(range(self._size(a.extent)) for a in steps)):
            fixed = {a.name: v for a, v in zip(steps, values)}
            for stage in self._nest.stages:
                self._stage(stage, fixed)

    def _nest_axis(self, name: str) -> Axis:
        return next(a for a in self._nest.axes if a.name == name)

    def _size(self, expr: IntExpr) -> int:
        return expr.evaluate(self._dims)

    def _stage(self, stage: Stage, fixed: Mapping[str, int]) -> None:
        reads_itself = any(load.buffer.name == stage.target.name for load in loads(stage.value))
        stepwise = stage.axes if reads_itself and stage.target.role != "temp" else ()
        for values in itertools.product(*(range(self._size(a.extent)) for a in stepwise)):
            own = {a.name: v for a, v in zip(stepwise, values)}
            self._block(stage, () if stepwise else stage.axes, {**fixed, **own})

    def _block(self, stage: Stage, axes: tuple[Axis, ...], fixed: Mapping[str, int]) -> None:
        whole = (*self._outer, *axes)
        shape = self._outer_shape + tuple(self._size(a.extent) for a in axes)
        env: Env = {**self._dims, **fixed}
        env |= {a.name: g for a, g in zip(whole, np.ogrid[tuple(slice(0, n) for n in shape)])}
        self._known = {}
        self._known = {}
        with np.errstate(all="ignore"):
            value = np.broadcast_to(self._value(stage.value, env, None), shape)
            index = self._index(stage.target, [_number(i, env) for i in stage.index], env, None)
            index = tuple(np.broadcast_to(i, shape) for i in index)
            if not math.prod(shape) and stage.kind == "store":
                return
            self._write(stage, index, value, env)

    def _write(self, stage: Stage, index: tuple[np.ndarray, ...], value: np.ndarray, env: Env) -> None:
        target = self._arrays[stage.target.name]
        if stage.kind == "store":
            target[index] = value
            return
        if not index:
            wide = value.astype(np.float64 if value.dtype.kind == "f" else value.dtype).reshape(-1)
            start = _NEUTRAL[stage.kind](wide.dtype)
            target[()] = _COMBINE[stage.kind].reduce(wide, initial=start, dtype=wide.dtype)
            return
        first = self._zeroth(index, stage, env)
        running = target.astype(np.float64) if target.dtype.kind == "f" else target.copy()
        running[first] = _NEUTRAL[stage.kind](running.dtype)
        if value.size:
            _COMBINE[stage.kind].at(running, index, value.astype(running.dtype))
        target[first] = running[first].astype(target.dtype)

    def _zeroth(self, index: tuple[np.ndarray, ...], stage: Stage, env: Env) -> tuple[Any, ...]:
        """Every element that the reduction writes, also where it has no steps."""
        if all(i.size for i in index):
            return index
        names = {a.name for a in stage.axes}
        kept = [a for a in stage.axes if any(a.name in i.symbols() for i in stage.index)]
        reduced = names - {a.name for a in kept}
        shape = self._outer_shape + tuple(self._size(a.extent) for a in kept)
        whole = (*self._outer, *kept)
        here = {**env, **dict.fromkeys(reduced, 0)}
        here |= {a.name: g for a, g in zip(whole, np.ogrid[tuple(slice(0, n) for n in shape)])}
        found = self._index(stage.target, [_number(i, here) for i in stage.index], here, None)
        return tuple(np.broadcast_to(i, shape) for i in found)

    def _index(self, buffer: Buffer, index: list[Any], env: Env, mask: Any) -> tuple[np.ndarray, ...]:
        own = []
        for i, dim in zip(index, buffer.shape, strict=True):
            extent = self._size(dim)
            i = np.asarray(i)
            i = i if mask is None else np.where(mask, i, 0)
            is_outside = (i < 0) | (i >= max(extent, 1))
            if np.any(is_outside):
                raise Internal(
                    f"index {i[is_outside].flat[0]} of {buffer.name} is outside of 0..{extent - 1}"
                )
            own.append(i)
        if buffer.role != "temp":
            return tuple(own)
        return (*(np.asarray(env[a.name]) for a in self._outer), *own)

    def _value(self, expr: Expr, env: Env, mask: Any) -> Any:
        """Shared parts once per mask: as a tree, a chain may have exponentially many parts."""
        key = id(expr), id(mask)
        if key not in self._known:
            # the mask is kept, so that its id stays its own
            self._known[key] = mask, self._computed(expr, env, mask)
        return self._known[key][1]

    def _computed(self, expr: Expr, env: Env, mask: Any) -> Any:
        if isinstance(expr, Const):
            return np.asarray(expr.value, expr.dtype.numpy)
        if isinstance(expr, IndexValue):
            return np.asarray(_number(expr.index, env)).astype(expr.dtype.numpy)
        if isinstance(expr, Load):
            index = [
                _number(i, env) if isinstance(i, IntExpr) else self._value(i, env, mask) for i in expr.index
            ]
            array = self._arrays[expr.buffer.name]
            if array.dtype != expr.buffer.dtype.numpy:
                array = array.view(expr.buffer.dtype.numpy)
            found = self._index(expr.buffer, index, env, mask)
            if not array.size:
                return np.zeros(np.broadcast_shapes(*(i.shape for i in found)), array.dtype)
            return array[found]
        if isinstance(expr, Apply):
            args = [self._value(a, env, mask) for a in expr.args]
            if expr.function == "bitcast":
                return np.ascontiguousarray(args[0]).view(expr.dtype.numpy).reshape(np.shape(args[0]))
            result = _FUNCTIONS[expr.function](*args)
            return np.asarray(result).astype(expr.dtype.numpy)
        if isinstance(expr, Cast):
            return converted(self._value(expr.value, env, mask), expr.dtype)
        assert isinstance(expr, Within), expr
        inside = np.asarray(True) if mask is None else mask
        for low, at, high in expr.conditions:
            where = np.asarray(_number(at, env))
            inside = inside & (where >= _number(low, env)) & (where < _number(high, env))
        value = self._value(expr.value, env, inside)
        return np.where(inside, value, self._value(expr.otherwise, env, mask))


def converted(array: Any, dtype: DType) -> Any:
    """With ONNX Cast's rules. What ONNX leaves open: floats go to integers toward zero, those that do not fit
    32 bits (64 for wide ones) to the nearest that does, NaN to zero; narrower integers take the low bits."""
    array = np.asarray(array)
    kind = array.dtype.kind
    is_float = kind == "f" or (kind == "V" and dtype_of_array(array).is_float)
    if dtype.kind == "bool":
        return array.astype(np.float32) != 0 if kind == "V" else array != 0
    if dtype.name in ("bfloat16", "float8e8m0") and array.dtype == np.float64:
        return _to_odd(array).astype(dtype.numpy)
    if not is_float or dtype.is_float:
        return array.astype(dtype.numpy)
    wide = array.astype(np.float64)
    wide = np.trunc(np.where(np.isnan(wide), 0, wide))
    if dtype.name == "uint64":
        top = np.minimum(wide, np.nextafter(2.0**64, 0))
        high = top >= 2.0**63
        signed = np.where(high, top - 2.0**63, np.maximum(top, -(2.0**63))).astype(np.int64)
        low: np.ndarray = signed.view(np.uint64)
        return np.asarray(low ^ (high.astype(np.uint64) << np.uint64(63)))
    bits = 64 if dtype.bits == 64 or dtype.name == "uint32" else 32
    limit = 2.0 ** (bits - 1)
    below = limit - 1 if bits == 32 else np.nextafter(limit, 0)
    if array.dtype != np.float64:
        below = float(np.nextafter(np.float32(limit), np.float32(0)))
    return np.clip(wide, -limit, below).astype(np.int64).astype(dtype.carrier.numpy).astype(dtype.numpy)


def _to_odd(array: np.ndarray) -> np.ndarray:
    """To float32, to the odd neighbour where it is not exact: ml_dtypes would round twice."""
    near = array.astype(np.float32)
    inward = np.where(np.abs(near) > np.abs(array), np.nextafter(near, np.float32(0)), near)
    inexact = (near != array) & ~np.isnan(array)
    bits = np.where(inexact, inward, near).astype(np.float32).view(np.uint32)
    return np.asarray((bits | inexact.astype(np.uint32)).view(np.float32))


def _number(expr: IntExpr, env: Env) -> Any:
    """`IntExpr.evaluate` where symbols stand for arrays: minima and maxima are taken element by element."""
    total: Any = 0
    for monomial, coefficient in expr.terms:
        term: Any = coefficient
        for atom, power in monomial:
            value = env[atom.name] if isinstance(atom, Symbol) else _called(atom, env)
            term = term * value**power
        total = total + term
    return total


def _called(call: Call, env: Env) -> Any:
    args = [_number(a, env) for a in call.args]
    if call.function == "floordiv":
        return np.floor_divide(args[0], args[1])
    if call.function == "mod":
        return np.mod(args[0], args[1])
    return functools.reduce(np.minimum if call.function == "min" else np.maximum, args)


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _highest(dtype: np.dtype) -> Any:
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


_NEUTRAL: dict[str, Callable[[np.dtype], Any]] = {
    "sum": lambda _: 0,
    "prod": lambda _: 1,
    "max": _lowest,
    "min": _highest,
}
_COMBINE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _wide(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """In double precision: rounding comes at the end."""
    return lambda x: function(np.asarray(x).astype(np.float64))


def _divide(a: Any, b: Any) -> Any:
    if np.result_type(a, b).kind == "f":
        return a / b
    a, b = np.asarray(a), np.asarray(b)
    zero = a.dtype.type(0)
    is_minus_one = np.less(b, 0) & (b + 1 == 0)
    safe = np.where((b == 0) | is_minus_one, a.dtype.type(1), b)
    quotient = np.floor_divide(a, safe)
    # toward zero instead of down
    quotient += ((quotient * safe != a) & (np.less(a, 0) != np.less(safe, 0))).astype(a.dtype)
    return np.where(b == 0, zero, np.where(is_minus_one, zero - a, quotient))


def _shifted(shift: Callable[..., Any], a: Any, b: Any) -> Any:
    """By the width or more, or by less than zero: every bit goes, and the sign fills from the left."""
    width = np.asarray(a).dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    sign = np.where(np.less(a, 0), ~np.zeros_like(a), np.zeros_like(a))
    beyond = sign if shift is np.right_shift else np.zeros_like(a)
    return np.where(inside, shift(a, np.where(inside, b, np.zeros_like(b))), beyond)


def _integer_power(a: Any, b: Any) -> Any:
    """Wraps around; a negative exponent is a division, rounded toward zero."""
    if np.asarray(b).dtype.kind == "u":
        return np.power(a, b)
    result = np.power(a, np.maximum(b, 0))
    inverse = np.where(a == 1, 1, np.where(np.equal(a, -1), np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, inverse, result)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "acos": _wide(np.arccos),
    "acosh": _wide(np.arccosh),
    "asin": _wide(np.arcsin),
    "asinh": _wide(np.arcsinh),
    "atan": _wide(np.arctan),
    "atanh": _wide(np.arctanh),
    "ceil": np.ceil,
    "cos": _wide(np.cos),
    "cosh": _wide(np.cosh),
    "erf": _wide(_erf),
    "exp": _wide(np.exp),
    "floor": np.floor,
    "log": _wide(np.log),
    "neg": lambda x: -x if np.asarray(x).dtype.kind != "u" else np.zeros_like(x) - x,
    "reciprocal": lambda x: 1 / x,
    "rint": np.rint,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "sigmoid": _wide(lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))),
    "sign": np.sign,
    "sin": _wide(np.sin),
    "sinh": _wide(np.sinh),
    "sqrt": np.sqrt,
    "tan": _wide(np.tan),
    "tanh": _wide(np.tanh),
    "not": np.logical_not,
    "isnan": np.isnan,
    "bitnot": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "max": np.maximum,
    "min": np.minimum,
    "mod": np.mod,
    "fmod": np.fmod,
    "pow": lambda a, b: np.power(a.astype(np.float64), b) if a.dtype.kind == "f" else _integer_power(a, b),
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": lambda a, b: _shifted(np.left_shift, a, b),
    "shr": lambda a, b: _shifted(np.right_shift, a, b),
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
