"""Nests with addresses instead of indices: every load and store has one element offset.

Strides are explicit here, so axes that are contiguous together in every buffer can become one axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Union

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.kernel.access import NestAccess
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Within
from cuvil_build.kernel.nest import Axis, Nest

Condition = tuple[IntExpr, IntExpr, IntExpr]


@dataclass(frozen=True, slots=True)
class FlatLoad:
    """`buffer[offset + the gathered terms]`."""

    buffer: Buffer
    offset: IntExpr
    gathers: tuple[tuple[IntExpr, IntExpr, FlatExpr], ...] = ()
    """(stride, extent, index): indices that are values, kept within [0, extent)."""

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class FlatApply:
    function: str
    args: tuple[FlatExpr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class FlatCast:
    value: FlatExpr
    dtype: DType


@dataclass(frozen=True, slots=True)
class FlatWithin:
    conditions: tuple[Condition, ...]
    value: FlatExpr
    otherwise: FlatExpr

    @property
    def dtype(self) -> DType:
        return self.value.dtype


FlatExpr = Union[Const, IndexValue, FlatLoad, FlatApply, FlatCast, FlatWithin]


@dataclass(frozen=True, slots=True)
class FlatStage:
    axes: tuple[Axis, ...]
    kind: str
    target: Buffer
    offset: IntExpr
    value: FlatExpr
    reduced: frozenset[str]
    """Axes that the target's index does not mention; empty for stores."""
    carried: frozenset[str]
    """Axes that must run one step after the other."""

    @property
    def is_reduction(self) -> bool:
        return self.kind != "store"


@dataclass(frozen=True, slots=True)
class FlatNest:
    anchor: str
    axes: tuple[Axis, ...]
    carried: frozenset[str]
    stages: tuple[FlatStage, ...]
    collapsed: tuple[tuple[str, ...], ...] = ()
    """Which outer axes of the nest each axis stands for, where it is more than one."""

    def axis(self, name: str) -> Axis:
        return next(a for a in self.axes if a.name == name)

    def written(self) -> frozenset[str]:
        return frozenset(s.target.name for s in self.stages)


def flatten(nest: Nest, access: NestAccess) -> FlatNest:
    """The nest with offsets, without axes of one step, and with axes joined that are contiguous together."""
    build = _Flattener()
    stages = tuple(
        FlatStage(
            s.axes, s.kind, s.target, build.offset(s.target, s.index), build(s.value), a.reduced, a.carried
        )
        for s, a in zip(nest.stages, access.stages)
    )
    stages = tuple(_lift_padding(s) for s in stages)
    flat = FlatNest(nest.anchor, nest.axes, access.carried, stages, tuple((a.name,) for a in nest.axes))
    flat = _collapse_stages(_collapse_outer(_drop_single(flat)))
    return replace(flat, collapsed=tuple(group for group in flat.collapsed if len(group) > 1))


def _lift_padding(stage: FlatStage) -> FlatStage:
    """`sum` of `Within(c, x, 0) * w` as a sum of `Within(c, x * w, 0)`: such steps can be skipped."""
    product = stage.value
    if stage.kind != "sum" or not isinstance(product, FlatApply) or product.function != "mul":
        return stage
    conditions: tuple[Condition, ...] = ()
    factors: list[FlatExpr] = []
    zero: Const | None = None
    for factor in product.args:
        if (
            isinstance(factor, FlatWithin)
            and isinstance(factor.otherwise, Const)
            and factor.otherwise.value == 0
        ):
            conditions += factor.conditions
            zero = factor.otherwise
            factor = factor.value
        factors.append(factor)
    if zero is None:
        return stage
    unique = tuple(dict.fromkeys(conditions))
    return replace(stage, value=FlatWithin(unique, FlatApply("mul", tuple(factors), product.dtype), zero))


def flat_children(expr: FlatExpr) -> tuple[FlatExpr, ...]:
    if isinstance(expr, FlatApply):
        return expr.args
    if isinstance(expr, FlatCast):
        return (expr.value,)
    if isinstance(expr, FlatWithin):
        return (expr.value, expr.otherwise)
    if isinstance(expr, FlatLoad):
        return tuple(index for _, _, index in expr.gathers)
    return ()


def flat_parts(roots: Iterable[FlatExpr]) -> list[FlatExpr]:
    """All parts of some expressions, operands first, each object once."""
    seen: set[int] = set()
    order: list[FlatExpr] = []

    def visit(expr: FlatExpr) -> None:
        if id(expr) in seen:
            return
        seen.add(id(expr))
        for child in flat_children(expr):
            visit(child)
        order.append(expr)

    for root in roots:
        visit(root)
    return order


def flat_loads(expr: FlatExpr) -> Iterator[FlatLoad]:
    return (part for part in flat_parts([expr]) if isinstance(part, FlatLoad))


def own_integers(expr: FlatExpr) -> tuple[IntExpr, ...]:
    if isinstance(expr, IndexValue):
        return (expr.index,)
    if isinstance(expr, FlatLoad):
        return (expr.offset,)
    if isinstance(expr, FlatWithin):
        return tuple(part for condition in expr.conditions for part in condition)
    return ()


class _Flattener:
    """Expressions to flat ones; structurally equal results are one object."""

    def __init__(self, map_int: Callable[[IntExpr], IntExpr] | None = None) -> None:
        self._map_int = map_int or (lambda i: i)
        self._done: dict[int, tuple[Any, FlatExpr]] = {}
        self._known: dict[tuple[Any, ...], FlatExpr] = {}

    def offset(self, buffer: Buffer, index: Iterable[IntExpr | Expr]) -> IntExpr:
        strides = buffer.strides()
        total = ZERO
        for i, stride in zip(index, strides, strict=True):
            if isinstance(i, IntExpr):
                total = total + i * stride
        return self._map_int(total)

    def __call__(self, expr: Expr | FlatExpr) -> FlatExpr:
        found = self._done.get(id(expr))
        if found is None:
            built = self._build(expr)
            built = self._known.setdefault(_key(built), built)
            found = self._done[id(expr)] = (expr, built)
        return found[1]

    def _build(self, expr: Expr | FlatExpr) -> FlatExpr:
        if isinstance(expr, Const):
            return expr
        if isinstance(expr, IndexValue):
            return IndexValue(self._map_int(expr.index), expr.dtype)
        if isinstance(expr, Load):
            gathers = tuple(
                (stride, extent, self(i))
                for i, stride, extent in zip(expr.index, expr.buffer.strides(), expr.buffer.shape)
                if not isinstance(i, IntExpr)
            )
            return FlatLoad(expr.buffer, self.offset(expr.buffer, expr.index), gathers)
        if isinstance(expr, FlatLoad):
            again = tuple((stride, extent, self(i)) for stride, extent, i in expr.gathers)
            return FlatLoad(expr.buffer, self._map_int(expr.offset), again)
        if isinstance(expr, (Apply, FlatApply)):
            return FlatApply(expr.function, tuple(self(a) for a in expr.args), expr.dtype)
        if isinstance(expr, (Cast, FlatCast)):
            return FlatCast(self(expr.value), expr.dtype)
        assert isinstance(expr, (Within, FlatWithin))
        mapped = self._map_int
        conditions = tuple((mapped(a), mapped(b), mapped(c)) for a, b, c in expr.conditions)
        return FlatWithin(conditions, self(expr.value), self(expr.otherwise))


def _key(expr: FlatExpr) -> tuple[Any, ...]:
    parts = tuple(id(c) for c in flat_children(expr))
    own = own_integers(expr)
    if isinstance(expr, Const):
        return ("const", repr(expr.value), expr.dtype.name)
    if isinstance(expr, FlatLoad):
        return ("load", expr.buffer.name, own, parts)
    if isinstance(expr, FlatApply):
        return ("apply", expr.function, expr.dtype.name, parts)
    return (type(expr).__name__, own, expr.dtype.name, parts)


def _substituted(flat: FlatNest, values: dict[str, IntExpr], stage_number: int | None = None) -> FlatNest:
    """Replace axes in every address, or in those of one stage."""
    build = _Flattener(lambda i: i.substitute(values))
    stages = tuple(
        replace(s, offset=s.offset.substitute(values), value=build(s.value))
        if stage_number is None or n == stage_number
        else s
        for n, s in enumerate(flat.stages)
    )
    return replace(flat, stages=stages)


def _drop_single(flat: FlatNest) -> FlatNest:
    single = {a.name for a in flat.axes if a.extent == IntExpr.of(1)}
    flat = _substituted(flat, dict.fromkeys(single, ZERO))
    axes = tuple(a for a in flat.axes if a.name not in single)
    kept = tuple(group for group in flat.collapsed if group[0] not in single)
    flat = replace(flat, axes=axes, carried=flat.carried - single, collapsed=kept)
    for n, stage in enumerate(flat.stages):
        single = {a.name for a in stage.axes if a.extent == IntExpr.of(1)}
        flat = _substituted(flat, dict.fromkeys(single, ZERO), n)
        stage = flat.stages[n]
        left = tuple(a for a in stage.axes if a.name not in single)
        stage = replace(stage, axes=left, reduced=stage.reduced - single, carried=stage.carried - single)
        flat = replace(flat, stages=(*flat.stages[:n], stage, *flat.stages[n + 1 :]))
    return flat


def _integers(stages: Iterable[FlatStage]) -> set[IntExpr]:
    found: set[IntExpr] = set()
    for stage in stages:
        found.add(stage.offset)
        for part in flat_parts([stage.value]):
            found.update(own_integers(part))
    return found


def _are_contiguous(outer: Axis, inner: Axis, integers: set[IntExpr]) -> bool:
    """Whether every integer has outer * (c * extent of inner) + inner * c, so that one axis can do both."""
    for expr in integers:
        symbols = expr.symbols()
        if outer.name not in symbols and inner.name not in symbols:
            continue
        far, rest = expr.split(outer.name)
        if far is None:
            return False
        near, _ = rest.split(inner.name)
        if near is None or inner.name in far.symbols() or far != near * inner.extent:
            return False
    return True


def _pair(axes: Iterable[Axis], integers: set[IntExpr]) -> tuple[Axis, Axis] | None:
    listed = list(axes)
    for outer in listed:
        for inner in listed:
            if outer is not inner and _are_contiguous(outer, inner, integers):
                return outer, inner
    return None


def _collapse_outer(flat: FlatNest) -> FlatNest:
    while True:
        free = [a for a in flat.axes if a.name not in flat.carried]
        pair = _pair(free, _integers(flat.stages))
        if pair is None:
            return flat
        outer, inner = pair
        joined = Axis(inner.name, outer.extent * inner.extent)
        axes = tuple(joined if a is inner else a for a in flat.axes if a is not outer)
        groups = {group[-1]: group for group in flat.collapsed}
        groups[inner.name] = groups.pop(outer.name) + groups[inner.name]
        flat = _substituted(flat, {outer.name: ZERO})
        flat = replace(flat, axes=axes, collapsed=tuple(groups.values()))


def _collapse_stages(flat: FlatNest) -> FlatNest:
    for n in range(len(flat.stages)):
        while True:
            stage = flat.stages[n]
            integers = _integers([stage])
            kept = [a for a in stage.axes if a.name not in stage.carried | stage.reduced]
            reduced = [a for a in stage.axes if a.name in stage.reduced and a.name not in stage.carried]
            pair = _pair(kept, integers) or _pair(reduced, integers)
            if pair is None:
                break
            outer, inner = pair
            joined = Axis(inner.name, outer.extent * inner.extent)
            flat = _substituted(flat, {outer.name: ZERO}, n)
            stage = flat.stages[n]
            axes = tuple(joined if a.name == inner.name else a for a in stage.axes if a.name != outer.name)
            stage = replace(stage, axes=axes, reduced=stage.reduced - {outer.name})
            flat = replace(flat, stages=(*flat.stages[:n], stage, *flat.stages[n + 1 :]))
    return _renamed_stage_axes(flat)


def _renamed_stage_axes(flat: FlatNest) -> FlatNest:
    """By position again, so that stages with the same loops also have the same names."""
    for n, stage in enumerate(flat.stages):
        names = {a.name: f"j{k}" for k, a in enumerate(stage.axes)}
        flat = _substituted(flat, {old: IntExpr.of(new) for old, new in names.items()}, n)
        stage = flat.stages[n]
        stage = replace(
            stage,
            axes=tuple(Axis(names[a.name], a.extent) for a in stage.axes),
            reduced=frozenset(names[r] for r in stage.reduced),
            carried=frozenset(names[c] for c in stage.carried),
        )
        flat = replace(flat, stages=(*flat.stages[:n], stage, *flat.stages[n + 1 :]))
    return flat
