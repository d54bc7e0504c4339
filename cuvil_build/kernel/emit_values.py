"""Expressions of flat nests to values of loop programs, as vectors and outside of loops where they can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from cuvil_build.cuir.dtypes import BOOL, FLOAT64, INT64, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import Internal
from cuvil_build.kernel.expr import Const, IndexValue
from cuvil_build.kernel.flat import (
    Condition,
    FlatApply,
    FlatCast,
    FlatExpr,
    FlatLoad,
    FlatWithin,
    flat_children,
    flat_parts,
)
from cuvil_build.kernel.program import (
    Assign,
    Convert,
    Declare,
    For,
    If,
    InRange,
    IntValue,
    Iota,
    Lit,
    LoadAt,
    LoadStrided,
    Op,
    SetInt,
    SetIntFrom,
    Splat,
    Statement,
    StoreAt,
    StoreStrided,
    Value,
    Var,
    VType,
)

_CHEAP = (Lit, Var, IntValue)
Placed = tuple[Value, int]
"""A value and the depth of the outermost scope in which it may be computed."""


@dataclass(slots=True)
class Scope:
    statements: list[Statement]
    guard: bool
    """Runs only under a condition: loads must not leave it."""
    memo: dict[int, Placed] = field(default_factory=dict)
    stored: dict[tuple[str, IntExpr], Placed] = field(default_factory=dict)
    """Values that this scope has just stored."""
    integers: dict[IntExpr, IntExpr] = field(default_factory=dict)
    """Names of integer expressions."""


class ValueWriter:
    """Writes statements scope by scope, innermost last; values go to the outermost scope they can."""

    def __init__(self, mutable: Iterable[str], arrays: Mapping[str, int]) -> None:
        self.scopes: list[Scope] = [Scope([], False)]
        self.vector = ""
        """The axis that the lanes run along; empty in scalar code."""
        self.lanes = 1
        self.interleaved = False
        """Whether temporary arrays hold `lanes` points side by side."""
        self.assumed: dict[Condition, int] = {}
        """Conditions known to hold, with the depth of the scope that knows."""
        self._denied: dict[Condition, int] = {}
        """Conditions known not to hold, in the same way."""
        self.shift: dict[str, IntExpr] = {}
        self.temps: dict[str, Placed] = {}
        self.uses: dict[int, int] = {}
        self._levels: dict[str, int] = {}
        self._counter: dict[str, int] = {}
        self._mutable = frozenset(mutable)
        self._arrays = arrays
        self._volatile: dict[int, FlatExpr] = {}
        self._floor = 0

    # Scopes -------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def add(self, statement: Statement) -> None:
        self.scopes[-1].statements.append(statement)

    def fresh(self, prefix: str) -> str:
        number = self._counter.get(prefix, 0)
        self._counter[prefix] = number + 1
        return f"{prefix}{number}"

    def name_level(self, name: str, level: int | None = None) -> None:
        self._levels[name] = self.depth if level is None else level

    @contextmanager
    def inside(self, guard: bool = False) -> Iterator[list[Statement]]:
        """A new block; what is assumed in it ends with it."""
        scope = Scope([], guard)
        assumed, denied, shift = dict(self.assumed), dict(self._denied), dict(self.shift)
        self.scopes.append(scope)
        yield scope.statements
        self.scopes.pop()
        self.assumed, self._denied, self.shift = assumed, denied, shift

    @contextmanager
    def repeated(self, shift: dict[str, IntExpr]) -> Iterator[None]:
        """The same block again with axes moved: values of one repetition are not those of another."""
        scope = Scope(self.scopes[-1].statements, False)
        before = self.shift
        self.shift = {**before, **shift}
        self.scopes.append(scope)
        for name in shift:
            self._levels[name] = self.depth
        yield
        self.scopes.pop()
        self.shift = before

    @contextmanager
    def loop(
        self, var: str, start: IntExpr, stop: IntExpr, step: IntExpr = ONE, unroll: int = 0
    ) -> Iterator[None]:
        with self.inside() as body:
            self.name_level(var)
            yield
        if body:
            self.add(For(var, start, stop, step, tuple(body), unroll))

    @contextmanager
    def along(self, axis: str, lanes: int, interleaved: bool = False) -> Iterator[None]:
        """Values inside are vectors along an axis."""
        before = self.vector, self.lanes, self.interleaved
        self.vector, self.lanes, self.interleaved = (
            (axis if lanes > 1 else ""),
            lanes,
            interleaved and lanes > 1,
        )
        yield
        self.vector, self.lanes, self.interleaved = before

    def assume(self, conditions: Iterable[Condition]) -> None:
        for condition in conditions:
            self.assumed[condition] = self.depth

    def deny(self, condition: Condition) -> None:
        self._denied[condition] = self.depth

    def new_stage(self, roots: Iterable[FlatExpr], first: bool) -> None:
        """Forget values of memory that may have changed, count how often each part is used."""
        if not first:
            for scope in self.scopes:
                for number in [n for n in scope.memo if n in self._volatile]:
                    del scope.memo[number]
        uses: dict[int, int] = {}
        self._volatile = {}
        for part in flat_parts(list(roots)):
            reads_mutable = isinstance(part, FlatLoad) and part.buffer.name in self._mutable
            if reads_mutable or any(id(c) in self._volatile for c in flat_children(part)):
                self._volatile[id(part)] = part
            for child in flat_children(part):
                uses[id(child)] = uses.get(id(child), 0) + 1
        self.uses = uses

    # Integers -----------------------------------------------------------------------------------

    def level_of(self, expr: IntExpr) -> int:
        return max((self._levels.get(s, 0) for s in expr.symbols()), default=0)

    def moved(self, expr: IntExpr) -> IntExpr:
        return expr.substitute(self.shift) if self.shift else expr

    def named(self, prefix: str, expr: IntExpr) -> IntExpr:
        """A variable for an expression, set in the outermost scope that knows its parts."""
        expr = self.moved(expr)
        if expr.is_static or (len(expr.terms) == 1 and str(expr) in expr.symbols()):
            return expr
        level = self.level_of(expr)
        scope = self.scopes[level]
        if expr not in scope.integers:
            name = self.fresh(prefix)
            scope.statements.append(SetInt(name, expr))
            self._levels[name] = level
            scope.integers[expr] = IntExpr.of(name)
        return scope.integers[expr]

    # Values -------------------------------------------------------------------------------------

    def value(self, expr: FlatExpr) -> Value:
        return self._emit(expr)[0]

    def declare(self, prefix: str, value: Value, level: int | None = None, constant: bool = True) -> Var:
        name = self.fresh(prefix)
        where = self.depth if level is None else level
        self.scopes[where].statements.append(Declare(name, value.type, value, constant))
        self._levels[name] = where
        return Var(name, value.type)

    def widened(self, value: Value) -> Value:
        """With as many lanes as the code around has."""
        if value.type.lanes == self.lanes:
            return value
        assert value.type.lanes == 1, (value, self.lanes)
        kind = VType(value.type.dtype, self.lanes)
        return Lit(value.value, kind) if isinstance(value, Lit) else Splat(value, kind)

    def store(self, pointer: str, is_temp: bool, dtype: DType, offset: IntExpr, value: Value) -> None:
        value = value if value.type.dtype == dtype else Convert(value, VType(dtype, value.type.lanes))
        unmoved = offset
        offset = self.moved(offset)
        factor = self._factor(offset, is_temp)
        if factor != ZERO:
            value = self.widened(value)
        if is_temp and self.interleaved:
            offset = offset * self.lanes
        if not isinstance(value, _CHEAP):
            value = self.declare("v", value)
        if value.type.lanes == 1 or factor == ONE:
            self.add(StoreAt(pointer, offset, value))
        else:
            self.add(StoreStrided(pointer, offset, factor, value))
        self.scopes[-1].stored[pointer, unmoved] = (value, self.depth)

    def _factor(self, offset: IntExpr, is_temp: bool) -> IntExpr:
        """Elements from one lane to the next; zero in scalar code."""
        if self.lanes == 1:
            return ZERO
        if is_temp and self.interleaved:
            return ONE
        factor = offset.coefficient(self.vector)
        if factor is None:
            raise Internal(f"{offset} is not affine in {self.vector}")
        return factor

    def _emit(self, expr: FlatExpr) -> Placed:
        for scope in reversed(self.scopes):
            found = scope.memo.get(id(expr))
            if found is not None:
                return found
        value, level = self._computed(expr)
        shared = self.uses.get(id(expr), 0) > 1
        if isinstance(value, _CHEAP) or not (shared or level < self.depth):
            if isinstance(value, Var):
                self.scopes[level].memo[id(expr)] = value, level
            return value, level
        placed = (self.declare("v", value, level), level)
        self.scopes[level].memo[id(expr)] = placed
        return placed

    def _computed(self, expr: FlatExpr) -> Placed:
        if isinstance(expr, Const):
            return Lit(expr.value, VType(expr.dtype)), 0
        if isinstance(expr, IndexValue):
            return self._index(expr)
        if isinstance(expr, FlatLoad):
            return self._load(expr)
        if isinstance(expr, FlatCast):
            value, level = self._emit(expr.value)
            return Convert(value, VType(expr.dtype, value.type.lanes)), level
        if isinstance(expr, FlatWithin):
            return self._within(expr)
        return self._apply(expr)

    def _index(self, expr: IndexValue) -> Placed:
        index = self.moved(expr.index)
        factor = index.coefficient(self.vector) if self.lanes > 1 else ZERO
        scalar: Value = IntValue(index, VType(INT64))
        if expr.dtype != INT64:
            scalar = Convert(scalar, VType(expr.dtype))
        level = self.level_of(index)
        if factor == ZERO:
            return scalar, level
        if factor is None or not factor.is_static:
            raise Internal(f"{index} is not affine in {self.vector}")
        wide = VType(INT64, self.lanes)
        steps: Value = Iota(wide)
        if factor != ONE:
            steps = Op("mul", (steps, Lit(factor.value, wide)), wide)
        vector: Value = Op("add", (Splat(IntValue(index, VType(INT64)), wide), steps), wide)
        return (vector if expr.dtype == INT64 else Convert(vector, VType(expr.dtype, self.lanes))), level

    def _load(self, expr: FlatLoad) -> Placed:
        name, is_temp = expr.buffer.name, expr.buffer.role == "temp"
        for scope in reversed(self.scopes):
            stored = scope.stored.get((name, expr.offset))
            if stored is not None and not expr.gathers:
                return stored
        if is_temp and name not in self._arrays:
            if name not in self.temps:
                raise Internal(f"temp {name} is read before it is written")
            return self.temps[name]
        offset, level = self._address(expr)
        mutable = name in self._mutable
        # a load may neither leave the condition that makes it valid nor a loop that writes what it reads
        level = self.depth if mutable else max(level, self._floor, self._guard_depth())
        factor = self._factor(offset, is_temp)
        if is_temp and self.interleaved:
            return LoadAt(name, offset * self.lanes, VType(expr.dtype, self.lanes)), level
        if factor == ZERO:
            return LoadAt(name, offset, VType(expr.dtype)), level
        if factor == ONE:
            return LoadAt(name, offset, VType(expr.dtype, self.lanes)), level
        return LoadStrided(name, offset, factor, VType(expr.dtype, self.lanes)), level

    def _address(self, expr: FlatLoad) -> tuple[IntExpr, int]:
        offset = self.moved(expr.offset)
        for stride, extent, index in expr.gathers:
            value, level = self._emit(index)
            assert value.type.lanes == 1
            wide: Value = value if value.type.dtype == INT64 else Convert(value, VType(INT64))
            # models check their indices; memory is safe even where one does not
            below = IntValue(self.moved(extent) - 1, VType(INT64))
            wide = Op("min", (wide, below), VType(INT64))
            wide = Op("max", (wide, Lit(0, VType(INT64))), VType(INT64))
            level = max(level, self.level_of(extent))
            name = self.fresh("at")
            self.scopes[level].statements.append(SetIntFrom(name, wide))
            self._levels[name] = level
            offset = offset + self.moved(stride) * IntExpr.of(name)
        return offset, self.level_of(offset)

    def _guard_depth(self) -> int:
        return max((n for n, scope in enumerate(self.scopes) if scope.guard), default=0)

    def _within(self, expr: FlatWithin) -> Placed:
        denied = [self._denied[c] for c in expr.conditions if c in self._denied]
        if denied:
            value, level = self._emit(expr.otherwise)
            return value, max(level, *denied)
        known = [self.assumed[c] for c in expr.conditions if c in self.assumed]
        left = tuple(c for c in expr.conditions if c not in self.assumed)
        before = self._floor
        self._floor = max([before, *known])
        if not left:
            placed = self._emit(expr.value)
            self._floor = before
            return placed
        ranges = tuple((self.moved(a), self.moved(b), self.moved(c)) for a, b, c in left)
        if self.lanes > 1 and any(self.vector in i.symbols() for r in ranges for i in r):
            raise Internal(f"a condition along the vector axis {self.vector}")
        otherwise, _ = self._emit(expr.otherwise)
        with self.inside(guard=True) as then:
            inner, _ = self._emit(expr.value)
            lanes = max(inner.type.lanes, otherwise.type.lanes)
            inner = _to_lanes(inner, lanes)
            name = self.fresh("w")
            then.append(Assign(name, inner.type, inner))
        self._floor = before
        self.add(Declare(name, inner.type, _to_lanes(otherwise, lanes)))
        self.add(If(InRange(ranges), tuple(then)))
        self._levels[name] = self.depth
        return Var(name, inner.type), self.depth

    def _apply(self, expr: FlatApply) -> Placed:
        power = _small_power(expr)
        if power is not None:
            base, level = self._emit(expr.args[0])
            if not isinstance(base, Var):
                base = self.declare("v", base, level)
            result: Value = base
            for _ in range(power - 1):
                result = Op("mul", (result, base), base.type)
            return result, level
        placed = [self._emit(a) for a in expr.args]
        lanes = max(v.type.lanes for v, _ in placed)
        args = tuple(_to_lanes(v, lanes) for v, _ in placed)
        return Op(expr.function, args, VType(expr.dtype, lanes)), max(level for _, level in placed)


def _to_lanes(value: Value, lanes: int) -> Value:
    if value.type.lanes == lanes:
        return value
    kind = VType(value.type.dtype, lanes)
    return Lit(value.value, kind) if isinstance(value, Lit) else Splat(value, kind)


def _small_power(expr: FlatApply) -> int | None:
    """x ** 2 and x ** 3 are products."""
    if expr.function != "pow" or not isinstance(expr.args[1], Const):
        return None
    exponent = float(expr.args[1].value)
    return int(exponent) if exponent in (1.0, 2.0, 3.0) else None


def accumulator_dtype(kind: str, dtype: DType, lanes: int, steps: IntExpr) -> DType:
    """Long scalar sums of float32 run in float64: one accumulator would lose digits."""
    if dtype.kind == "bool":
        return BOOL
    long = not steps.is_static or steps.value > 64
    return FLOAT64 if kind == "sum" and dtype.name == "float32" and lanes == 1 and long else dtype
