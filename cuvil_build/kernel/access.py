"""Which axes of a nest carry a dependence, decided on exact integer sets.

Every access is a relation from the points of an iteration space to the elements of a buffer. An axis
carries a dependence when two points that differ in it touch the same element and one of them writes it;
such an axis may neither be vectorised nor run in parallel. What is not affine touches the whole buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import islpy as isl

from cuvil_build.cuir.int_expr import Call, IntExpr, Symbol
from cuvil_build.errors import Internal
from cuvil_build.kernel.expr import Buffer, Expr
from cuvil_build.kernel.nest import Axis, Nest, Stage, loads


@dataclass(frozen=True, slots=True)
class StageAccess:
    reduced: frozenset[str]
    """Axes over which a reduction combines: those that its target's index does not mention."""
    carried: frozenset[str]
    """Axes that carry another dependence within one point of the outer axes."""


@dataclass(frozen=True, slots=True)
class NestAccess:
    carried: frozenset[str]
    """Outer axes."""
    stages: tuple[StageAccess, ...]

    def may_be_parallel(self, axis: str) -> bool:
        """Whether an outer axis may be cut into ranges for threads, or into the lanes of vectors."""
        return axis not in self.carried

    def may_be_vector(self, stage: int, axis: str) -> bool:
        """Whether a stage's axis may be cut into the lanes of vectors; sums over lanes count."""
        return axis not in self.stages[stage].carried


@dataclass(frozen=True, slots=True)
class _Touch:
    buffer: Buffer
    index: tuple[IntExpr | None, ...]
    """None: anywhere."""
    stage: int
    writes: bool


def analyse(nest: Nest) -> NestAccess:
    """Raises Internal when the author's `sequential` axes are not found to be so."""
    touches = [t for number, stage in enumerate(nest.stages) for t in _touches(number, stage)]
    external = [t for t in touches if t.buffer.role != "temp"]
    everywhere = {a.name for a in nest.axes}
    carried: set[str] = set()
    for write in external:
        for other in external:
            rest = everywhere - carried
            if write.writes and other.buffer.name == write.buffer.name and rest:
                carried |= _carried_between(nest, write, other, rest)
    missing = sorted(set(nest.sequential) - carried)
    if missing:
        raise Internal(
            f"axes {', '.join(missing)} of a {nest.anchor} nest are sequential but carry no dependence"
        )
    stages = tuple(_stage_access(nest, n, touches) for n in range(len(nest.stages)))
    return NestAccess(frozenset(carried), stages)


def _touches(number: int, stage: Stage) -> Iterable[_Touch]:
    for load in loads(stage.value):
        index = tuple(i if isinstance(i, IntExpr) else None for i in load.index)
        yield _Touch(load.buffer, index, number, False)
    target: Sequence[IntExpr | Expr] = stage.index
    yield _Touch(stage.target, tuple(i if isinstance(i, IntExpr) else None for i in target), number, True)


def _stage_access(nest: Nest, number: int, touches: Sequence[_Touch]) -> StageAccess:
    stage = nest.stages[number]
    own = [t for t in touches if t.stage == number and t.buffer.name == stage.target.name]
    names = {a.name for a in stage.axes}
    if stage.kind != "store":
        mentioned = frozenset().union(*(i.symbols() for i in stage.index))
        reduced = frozenset(names - mentioned)
        if len(own) > 1:  # the value reads what it sums up
            return StageAccess(reduced, frozenset(names))
        return StageAccess(reduced, frozenset())
    write = next(t for t in own if t.writes)
    carried: set[str] = set()
    for other in own:
        rest = names - carried
        if rest:
            carried |= _carried_between(nest, write, other, rest, within_point=True)
    return StageAccess(frozenset(), frozenset(carried))


def _carried_between(
    nest: Nest, write: _Touch, other: _Touch, axes: set[str], within_point: bool = False
) -> set[str]:
    """Axes of `axes` in which two points differ that touch the same element."""
    same = len(write.index) == 0 or all(
        a is not None and a.is_static and a == b for a, b in zip(write.index, other.index)
    )
    if same:
        wide = {a.name for a in (*nest.axes, *nest.stages[write.stage].axes) if a.extent != IntExpr.of(1)}
        return axes & wide
    pairs = _Pairs(nest, write, other)
    if within_point:
        pairs.equate(a.name for a in nest.axes)
    return {name for name in sorted(axes) if pairs.differ_in(name)}


class _Pairs:
    """All pairs of points (of a write, of another access) that touch the same element."""

    def __init__(self, nest: Nest, write: _Touch, other: _Touch) -> None:
        self._left = (*nest.axes, *nest.stages[write.stage].axes)
        self._right = (*nest.axes, *nest.stages[other.stage].axes)
        self._dims: list[str] = sorted(
            {s for a in (*self._left, *self._right) for s in a.extent.symbols()}
            | {s for i in (*write.index, *other.index) if i is not None for s in i.symbols()}
            - {a.name for a in (*self._left, *self._right)}
        )
        self._constraints: list[str] = []
        self._divisions = 0
        self._exists: list[str] = []
        for side, touched in (("a", self._left), ("b", self._right)):
            for axis in touched:
                extent = self._text(axis.extent, side, touched)
                upper = "" if extent is None else f" < {extent}"
                self._constraints.append(f"0 <= {side}_{axis.name}{upper}")
        for one, two in zip(write.index, other.index):
            if one is None or two is None:
                continue
            texts = self._text(one, "a", self._left), self._text(two, "b", self._right)
            if None not in texts:
                self._constraints.append(f"{texts[0]} = {texts[1]}")

    def equate(self, names: Iterable[str]) -> None:
        self._constraints += [f"a_{name} = b_{name}" for name in names]

    def differ_in(self, name: str) -> bool:
        names = [f"a_{a.name}" for a in self._left] + [f"b_{a.name}" for a in self._right]
        difference = f"(a_{name} < b_{name} or a_{name} > b_{name})"
        text = " and ".join([*self._constraints, *(f"{d} >= 0" for d in self._dims), difference])
        if self._exists:
            text = f"exists ({', '.join(self._exists)} : {text})"
        return not isl.Set(f"[{', '.join(self._dims)}] -> {{ [{', '.join(names)}] : {text} }}").is_empty()

    def _text(self, expr: IntExpr, side: str, axes: Iterable[Axis]) -> str | None:
        """Affine text for isl, with a variable for every division; None when it is not affine."""
        names = {a.name: f"{side}_{a.name}" for a in axes}
        terms = ["0"]
        for monomial, number in expr.terms:
            if len(monomial) > 1 or any(power > 1 for _, power in monomial):
                return None
            text = "1"
            for atom, _ in monomial:
                found = self._atom(atom, side, axes, names)
                if found is None:
                    return None
                text = found
            terms.append(f"{number}*{text}")
        return "(" + " + ".join(terms) + ")"

    def _atom(
        self, atom: Symbol | Call, side: str, axes: Iterable[Axis], names: dict[str, str]
    ) -> str | None:
        if isinstance(atom, Symbol):
            return names.get(atom.name, atom.name)
        if atom.function not in ("floordiv", "mod") or not atom.args[1].is_static or atom.args[1].value <= 0:
            return None
        inner = self._text(atom.args[0], side, axes)
        if inner is None:
            return None
        divisor = atom.args[1].value
        quotient = f"floor({inner}/{divisor})"
        return quotient if atom.function == "floordiv" else f"({inner} - {divisor}*{quotient})"
