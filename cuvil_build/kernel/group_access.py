"""Whether nests may run as a group, decided on exact integer sets.

Two things must hold at every size of the free dims. What a nest reads of a buffer that the group writes was
written by an earlier nest of the group at the same outer point. And no element outside of the scratch is
written at two points: then no point can see what another one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from cuvil_build.cuir.int_expr import Call, IntExpr, Monomial, Symbol
from cuvil_build.kernel.expr import Expr, Load, Within
from cuvil_build.kernel.group_axes import SharedAxis
from cuvil_build.kernel.nest import Axis, Nest, children

Condition = tuple[IntExpr, IntExpr, IntExpr]


@dataclass(frozen=True, slots=True)
class _Touch:
    nest: int
    buffer: str
    axes: tuple[Axis, ...]
    """The nest's and the stage's."""
    index: tuple[IntExpr | None, ...]
    """None: an element that data decides."""
    conditions: tuple[Condition, ...]
    writes: bool


def may_group(nests: Sequence[Nest], axes: Sequence[SharedAxis], block: int, private: frozenset[str]) -> bool:
    """Whether points of the shared axes may run by themselves; `block` rows of the last axis are one point
    where it isn't 0. `private` buffers are nobody else's."""
    touches = [t for number, nest in enumerate(nests) for t in _touches(number, nest)]
    written = sorted({t.buffer for t in touches if t.writes})
    return all(_is_right(nests, axes, block, touches, name, name in private) for name in written)


def _is_right(
    nests: Sequence[Nest],
    axes: Sequence[SharedAxis],
    block: int,
    touches: Sequence[_Touch],
    name: str,
    is_private: bool,
) -> bool:
    own = [t for t in touches if t.buffer == name]
    writes = [t for t in own if t.writes]
    relations = _Relations(nests, axes, block)
    stores = [relations.of(t) for t in writes]
    if any(store is None for store in stores):
        return False
    for read in (t for t in own if not t.writes):
        earlier = [s for t, s in zip(writes, stores, strict=True) if t.nest < read.nest]
        if len(earlier) < len(writes) or not relations.covers(earlier, relations.of(read)):
            return False  # also where a later nest writes what this one reads
    return is_private or relations.is_separate(stores)


def _touches(number: int, nest: Nest) -> Iterator[_Touch]:
    for stage in nest.stages:
        axes = (*nest.axes, *stage.axes)
        for load, conditions in _guarded_loads(stage.value, (), set()):
            if load.buffer.role != "temp":
                index = tuple(i if isinstance(i, IntExpr) else None for i in load.index)
                yield _Touch(number, load.buffer.name, axes, index, conditions, False)
        if stage.target.role != "temp":
            yield _Touch(number, stage.target.name, axes, stage.index, (), True)


def _guarded_loads(
    expr: Expr, conditions: tuple[Condition, ...], seen: set[tuple[int, tuple[Condition, ...]]]
) -> Iterator[tuple[Load, tuple[Condition, ...]]]:
    """Loads with what must hold where they are evaluated."""
    if (id(expr), conditions) in seen:
        return
    seen.add((id(expr), conditions))
    if isinstance(expr, Load):
        yield expr, conditions
    if isinstance(expr, Within):
        yield from _guarded_loads(expr.value, (*conditions, *expr.conditions), seen)
        yield from _guarded_loads(expr.otherwise, conditions, seen)
        return
    for child in children(expr):
        yield from _guarded_loads(child, conditions, seen)


class _Relations:
    """Relations from outer points to elements of a buffer, as isl has them."""

    def __init__(self, nests: Sequence[Nest], axes: Sequence[SharedAxis], block: int) -> None:
        self._axes = axes
        self._block = block
        self._sizes: dict[str, str] = {}
        """Parameters by the text of what they stand for: a free dim, or a product of some."""
        for axis in (a for nest in nests for a in (*nest.axes, *(b for s in nest.stages for b in s.axes))):
            self._affine(axis.extent, {})

    def covers(self, writes: Sequence[_Relation | None], read: _Relation | None) -> bool:
        if read is None or not writes:
            return False
        return bool(self._map(read).is_subset(self._union([w for w in writes if w is not None])))

    def is_separate(self, writes: Sequence[_Relation | None]) -> bool:
        return bool(self._union([w for w in writes if w is not None]).is_injective())

    def of(self, touch: _Touch) -> _Relation | None:
        """None where the index is not affine."""
        names = {a.name: f"a{n}" for n, a in enumerate(touch.axes)}
        texts = [None if i is None else self._affine(i, names) for i in touch.index]
        constraints: list[str] = []
        for axis in touch.axes:
            extent = self._affine(axis.extent, {})
            if extent is None:
                return None
            constraints.append(f"0 <= {names[axis.name]} < {extent}")
        for n, shared in enumerate(self._axes):
            own = names[shared.names[touch.nest]]
            is_block = self._block and n == len(self._axes) - 1
            constraints.append(f"g{n} = floor({own}/{self._block})" if is_block else f"g{n} = {own}")
        for condition in touch.conditions:
            low, at, high = (self._affine(part, names) for part in condition)
            if low is not None and at is not None and high is not None:
                constraints.append(f"{low} <= {at} < {high}")  # others only leave more reads
        if any(t is None for t in texts):
            return None
        elements = [f"e{n} = {t}" for n, t in enumerate(texts)]
        return _Relation(len(texts), tuple(names.values()), (*constraints, *elements))

    def _union(self, relations: Sequence[_Relation]) -> isl.Map:
        found = self._map(relations[0])
        for relation in relations[1:]:
            found = found.union(self._map(relation))
        return found

    def _map(self, relation: _Relation) -> isl.Map:
        sizes = sorted(self._sizes.values())
        points = ", ".join(f"g{n}" for n in range(len(self._axes)))
        elements = ", ".join(f"e{n}" for n in range(relation.rank))
        where = " and ".join(relation.constraints) or "1 = 1"
        if relation.variables:
            where = f"exists ({', '.join(relation.variables)} : {where})"
        return isl.Map(f"[{', '.join(sizes)}] -> {{ [{points}] -> [{elements}] : {where} }}")

    def _affine(self, expr: IntExpr, names: Mapping[str, str]) -> str | None:
        """Text in which every product of sizes is one parameter; None where it is not affine in the axes."""
        terms = ["0"]
        for monomial, number in expr.terms:
            text = self._monomial(monomial, names)
            if text is None:
                return None
            terms.append(f"{number}*{text}")
        return f"({' + '.join(terms)})"

    def _monomial(self, monomial: Monomial, names: Mapping[str, str]) -> str | None:
        if not monomial:
            return "1"
        whole = IntExpr(((monomial, 1),))
        if not whole.symbols() & names.keys():
            return self._sizes.setdefault(str(whole), f"n{len(self._sizes)}")
        if len(monomial) > 1 or monomial[0][1] > 1:
            return None
        atom = monomial[0][0]
        return names[atom.name] if isinstance(atom, Symbol) else self._call(atom, names)

    def _call(self, call: Call, names: Mapping[str, str]) -> str | None:
        if call.function not in ("floordiv", "mod"):
            return None
        inner, divisor = self._affine(call.args[0], names), call.args[1]
        if inner is None or not divisor.is_static or divisor.value <= 0:
            return None
        quotient = f"floor({inner}/{divisor.value})"
        return quotient if call.function == "floordiv" else f"({inner} - {divisor.value}*{quotient})"


@dataclass(frozen=True, slots=True)
class _Relation:
    rank: int
    variables: tuple[str, ...]
    constraints: tuple[str, ...]
