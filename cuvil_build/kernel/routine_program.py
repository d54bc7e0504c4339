"""Routines as loop programs: scalar code, one chunk for each point of the axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cuvil_build.cuir.dtypes import BOOL, INT64
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, maximum, product
from cuvil_build.kernel import program as p
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Local, Within
from cuvil_build.kernel.nest import children, parts
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

_BEGIN, _END, _CHUNK = IntExpr.of("begin"), IntExpr.of("end"), IntExpr.of("chunk")
_INT64, _BOOL = p.VType(INT64), p.VType(BOOL)
_UNKNOWN_TRIPS = 8
"""What the work estimate takes for a loop that data decides."""


def build_routine_program(routine: Routine, dims: tuple[str, ...]) -> p.Program:
    """The program of a canonical routine (its dims are named `d0`, `d1`, …)."""
    return _ProgramBuilder(routine, dims).build()


def index_of(place: Place) -> IntExpr | None:
    """An int64 expression of locals, sums and products as an integer expression."""
    if isinstance(place, IntExpr):
        return place
    if isinstance(place, Local):
        return IntExpr.of(place.name) if place.dtype == INT64 else None
    if isinstance(place, Const):
        return IntExpr.of(int(place.value))
    if isinstance(place, IndexValue):
        return place.index if place.dtype == INT64 else None
    if not isinstance(place, Apply) or place.dtype != INT64 or place.function not in ("add", "sub", "mul"):
        return None
    left, right = (index_of(a) for a in place.args)
    if left is None or right is None:
        return None
    if place.function == "mul":
        return left * right
    return left + right if place.function == "add" else left - right


class _ProgramBuilder:
    def __init__(self, routine: Routine, dims: tuple[str, ...]) -> None:
        self._routine = routine
        self._dims = dims
        self._mutable = {s.name for s in statements(routine.body) if isinstance(s, Set)}
        self._counter = 0
        self._named: dict[int, p.Var] = {}
        """Parts of the current statement's expressions that have a variable, by id."""

    def build(self) -> p.Program:
        routine = self._routine
        body: list[p.Statement] = []
        scratch = ZERO
        for temp in routine.temps:
            body.append(p.Pointer(temp.name, temp.dtype, "scratch", _elements(scratch, temp), False))
            scratch = scratch + _padded(temp)
        body.append(p.For("chunk", _BEGIN, _END, ONE, (*self._point(), *self._block(routine.body))))
        written = routine.written()
        buffers = sorted(routine.buffers(), key=lambda b: int(b.name[1:]))
        return p.Program(
            params=tuple(
                p.Param(b.name, b.dtype, b.name not in written, restrict=b.name not in written)
                for b in buffers
            ),
            dims=self._dims,
            functions=(),
            body=tuple(body),
            chunks=product(a.extent for a in routine.axes),
            scratch=scratch,
            work=estimate(routine),
        )

    def _point(self) -> list[p.Statement]:
        """The number of the chunk as the numbers of its axes."""
        found: list[p.Statement] = []
        rest = _CHUNK
        for number, axis in reversed(list(enumerate(self._routine.axes))):
            extent = axis.extent if axis.extent != ZERO else ONE  # no chunk runs
            found.append(p.SetInt(axis.name, rest if number == 0 else rest % extent))
            rest = rest // extent
        return found

    # Statements ---------------------------------------------------------------------------------

    def _block(self, body: Iterable[Statement]) -> tuple[p.Statement, ...]:
        found: list[p.Statement] = []
        for statement in body:
            # conditions of `while` are computed again and again: nothing of them may stand before the loop
            if not isinstance(statement, While):
                found += self._shared(expressions(statement))
            found += self._statement(statement)
            self._named = {}
        return tuple(found)

    def _statement(self, s: Statement) -> Sequence[p.Statement]:
        if isinstance(s, Let):
            kind = p.VType(s.value.dtype)
            return [p.Declare(s.name, kind, self._value(s.value), constant=s.name not in self._mutable)]
        if isinstance(s, Set):
            return [p.Assign(s.name, p.VType(s.value.dtype), self._value(s.value))]
        if isinstance(s, Store):
            return [p.StoreAt(s.buffer.name, self._offset(s.buffer, s.index), self._value(s.value))]
        if isinstance(s, For):
            return self._for(s)
        if isinstance(s, While):
            return [p.While(self._value(s.condition), self._block(s.body))]
        condition = p.IsTrue(self._value(s.condition))
        return [p.If(condition, self._block(s.then), self._block(s.otherwise))]

    def _for(self, s: For) -> list[p.Statement]:
        found: list[p.Statement] = []
        start, stop = (self._bound(place, found) for place in (s.start, s.stop))
        return [*found, p.For(s.name, start, stop, ONE, self._block(s.body))]

    def _bound(self, place: Place, before: list[p.Statement]) -> IntExpr:
        """A bound that keeps its value while the loop runs."""
        expr = index_of(place)
        if expr is not None and not (expr.symbols() & self._mutable):
            return expr
        name = self._fresh()
        if expr is not None:
            before.append(p.SetInt(name, expr))
        else:
            assert not isinstance(place, IntExpr)
            before.append(p.SetIntFrom(name, self._value(place)))
        return IntExpr.of(name)

    def _fresh(self) -> str:
        self._counter += 1
        return f"u{self._counter - 1}"

    def _shared(self, roots: Sequence[Expr]) -> list[p.Statement]:
        """Variables for what the statement uses more than once, and always."""
        uses: dict[int, int] = {}
        order: list[Expr] = []

        def visit(expr: Expr) -> None:
            uses[id(expr)] = uses.get(id(expr), 0) + 1
            if uses[id(expr)] > 1:
                return
            for child in _always(expr):
                visit(child)
            order.append(expr)

        for root in roots:
            visit(root)
        found: list[p.Statement] = []
        for expr in order:
            if uses[id(expr)] > 1 and isinstance(expr, (Apply, Cast, Load, Within)):
                kind = p.VType(expr.dtype)
                name = self._fresh()
                found.append(p.Declare(name, kind, self._value(expr), constant=True))
                self._named[id(expr)] = p.Var(name, kind)
        return found

    # Values -------------------------------------------------------------------------------------

    def _value(self, expr: Expr) -> p.Value:
        named = self._named.get(id(expr))
        return named if named is not None else self._computed(expr)

    def _computed(self, expr: Expr) -> p.Value:
        kind = p.VType(expr.dtype)
        if isinstance(expr, Const):
            return p.Lit(expr.value, kind)
        if isinstance(expr, Local):
            return p.Var(expr.name, kind)
        if isinstance(expr, IndexValue):
            number = p.IntValue(expr.index, _INT64)
            return number if expr.dtype == INT64 else p.Convert(number, kind)
        if isinstance(expr, Load):
            return p.LoadAt(expr.buffer.name, self._offset(expr.buffer, expr.index), kind)
        if isinstance(expr, Cast):
            return p.Convert(self._value(expr.value), kind)
        if isinstance(expr, Within):
            choice = (_inside(expr), self._value(expr.value), self._value(expr.otherwise))
            return p.Op("select", choice, kind)
        if _is_step(expr):
            count = index_of(expr)
            assert count is not None
            return p.IntValue(count, _INT64)
        args = tuple(self._value(a) for a in expr.args)
        if is_lazy(expr):
            if expr.function == "and":
                return p.Op("select", (args[0], args[1], p.Lit(False, _BOOL)), kind)
            return p.Op("select", (args[0], p.Lit(True, _BOOL), args[1]), kind)
        return p.Op(expr.function, args, kind)

    def _offset(self, buffer: Buffer, index: Sequence[Place]) -> IntExpr | p.Value:
        known = ZERO
        rest: p.Value | None = None
        for place, stride in zip(index, buffer.strides(), strict=True):
            expr = index_of(place)
            if expr is not None:
                known = known + expr * stride
                continue
            assert not isinstance(place, IntExpr)
            term = self._value(place)
            if term.type != _INT64:
                term = p.Convert(term, _INT64)
            if stride != ONE:
                term = p.Op("mul", (term, p.IntValue(stride, _INT64)), _INT64)
            rest = term if rest is None else p.Op("add", (rest, term), _INT64)
        if rest is None:
            return known
        return rest if known == ZERO else p.Op("add", (rest, p.IntValue(known, _INT64)), _INT64)


def _is_step(expr: Apply) -> bool:
    """A counter plus or minus a number: it can't overflow, and needs no arithmetic that wraps."""
    if expr.dtype != INT64 or expr.function not in ("add", "sub"):
        return False
    counter, step = expr.args
    return isinstance(counter, Local) and isinstance(step, Const) and abs(int(step.value)) < 1 << 31


def is_lazy(expr: Expr) -> bool:
    """Whether the second operand of `and` and `or` is computed only where the first leaves it open."""
    if not isinstance(expr, Apply) or expr.function not in ("and", "or"):
        return False
    return _reads_memory(expr.args[1])


def _reads_memory(expr: Expr) -> bool:
    return isinstance(expr, Load) or any(map(_reads_memory, children(expr)))


def _always(expr: Expr) -> tuple[Expr, ...]:
    """Operands that are computed whenever the expression is."""
    if isinstance(expr, Within):
        return ()
    if is_lazy(expr) or (isinstance(expr, Apply) and expr.function == "select"):
        return expr.args[:1] if isinstance(expr, Apply) else ()
    return children(expr)


def _inside(expr: Within) -> p.Value:
    truth: p.Value | None = None
    for low, index, high in expr.conditions:
        at = p.IntValue(index, _INT64)
        for function, bound in (("ge", low), ("lt", high)):
            found: p.Value = p.Op(function, (at, p.IntValue(bound, _INT64)), _BOOL)
            truth = found if truth is None else p.Op("and", (truth, found), _BOOL)
    assert truth is not None
    return truth


def _padded(buffer: Buffer) -> IntExpr:
    """Bytes, so that the next buffer is aligned to 64."""
    return (product(buffer.shape) * buffer.dtype.nbytes + 63) // 64 * 64


def _elements(offset: IntExpr, buffer: Buffer) -> IntExpr:
    """An offset in bytes, a sum of multiples of 64, in elements."""
    return offset // buffer.dtype.nbytes


# Work --------------------------------------------------------------------------------------------


def estimate(routine: Routine) -> IntExpr:
    """Scalar operations of one point, over the routine's dims; outer loops are taken at their first step."""
    return _work(routine.body, dict.fromkeys((a.name for a in routine.axes), ZERO), frozenset())


def _work(body: Sequence[Statement], first: Mapping[str, IntExpr], unknown: frozenset[str]) -> IntExpr:
    """`first` has loop variables at their first step, `unknown` names what data decides."""
    total = ZERO
    for s in body:
        total = total + sum(_operations(e) for e in expressions(s)) + 1
        if isinstance(s, Let):
            unknown = unknown | {s.name}
        elif isinstance(s, While):
            total = total + _work(s.body, first, unknown) * _UNKNOWN_TRIPS
        elif isinstance(s, For):
            trips = _trips(s, first, unknown)
            total = total + trips * _work(s.body, {**first, s.name: ZERO}, unknown)
        elif isinstance(s, When):
            total = total + _work(s.then, first, unknown) + _work(s.otherwise, first, unknown)
    return total


def _trips(s: For, first: Mapping[str, IntExpr], unknown: frozenset[str]) -> IntExpr:
    start, stop = index_of(s.start), index_of(s.stop)
    if start is None or stop is None or (start.symbols() | stop.symbols()) & unknown:
        return IntExpr.of(_UNKNOWN_TRIPS)
    span = (stop - start).substitute(first)
    known = span.bounds({})
    return span if known is not None and known[0] >= 0 else maximum(span, 0)


def _operations(expr: Expr) -> int:
    return sum(1 for _ in parts(expr))
