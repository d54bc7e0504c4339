"""Which axes of different nests are one axis: those that write and read a buffer between them alike.

A nest writes `m[h, r]` and a later one reads `m[4*g + n, s]`: h is cut into 4*g' + n', and then g' goes with
g, n' with n, and r with s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel.draft import rewrite
from cuvil_build.kernel.expr import Expr
from cuvil_build.kernel.nest import Axis, Nest, Stage, loads
from cuvil_build.kernel.split import simplify

Place = tuple[int, str]
"""An outer axis: the number of its nest, and its name."""
_MOST_SPLITS = 16
PRODUCTS = ("contraction", "window")
"""Anchors of nests that multiply."""


@dataclass(frozen=True, slots=True)
class SharedAxis:
    """One axis of several nests."""

    extent: IntExpr
    names: tuple[str, ...]
    """What each nest calls it, in order of the nests."""


def align(nests: Sequence[Nest]) -> tuple[tuple[Nest, ...], tuple[SharedAxis, ...]]:
    """The nests with axes cut where that makes more of them match, and the axes that all of them share, in
    the order of the last nest that computes products, or of the last one."""
    found = tuple(nests)
    for _ in range(_MOST_SPLITS):
        split = next(_splits(found), None)
        if split is None:
            break
        number, name, extents = split
        found = (*found[:number], split_axis(found[number], name, extents), *found[number + 1 :])
    return found, _shared(found)


def split_axis(nest: Nest, name: str, extents: Sequence[IntExpr]) -> Nest:
    """The nest with one outer axis cut into several, outermost first."""
    taken = {a.name for a in nest.axes} | {a.name for s in nest.stages for a in s.axes}
    taken |= {s for i in _integers(nest) for s in i.symbols()}
    fresh: list[str] = []
    while len(fresh) < len(extents):
        candidate = next(n for k in range(len(taken) + 1) if (n := f"i{k}") not in taken)
        taken.add(candidate)
        fresh.append(candidate)
    value = ZERO
    for part, extent in zip(fresh, extents, strict=True):
        value = value * extent + IntExpr.of(part)
    parts = tuple(Axis(n, e) for n, e in zip(fresh, extents, strict=True))
    axes = tuple(p for a in nest.axes for p in (parts if a.name == name else (a,)))
    return substitute(replace(nest, axes=axes), {name: value})


def substitute(nest: Nest, values: Mapping[str, IntExpr]) -> Nest:
    """The nest with symbols replaced in every index, and divisions resolved where the axes decide."""
    outer = {a.name: a.extent for a in nest.axes}
    stages: list[Stage] = []
    for stage in nest.stages:
        extents = outer | {a.name: a.extent for a in stage.axes}
        known: dict[IntExpr, IntExpr] = {}

        def mapped(
            expr: IntExpr, extents: Mapping[str, IntExpr] = extents, known: dict[IntExpr, IntExpr] = known
        ) -> IntExpr:
            if expr not in known:
                known[expr] = simplify(expr.substitute(values), extents)
            return known[expr]

        memo: dict[int, Expr] = {}
        value = rewrite(stage.value, mapped, None, memo)
        stages.append(replace(stage, index=tuple(map(mapped, stage.index)), value=value))
    return replace(nest, stages=tuple(stages))


def _integers(nest: Nest) -> Iterator[IntExpr]:
    for axis in (*nest.axes, *(a for s in nest.stages for a in s.axes)):
        yield axis.extent
    for stage in nest.stages:
        yield from stage.index
        for load in loads(stage.value):
            yield from load.buffer.shape
            yield from (i for i in load.index if isinstance(i, IntExpr))


def digits(expr: IntExpr, extents: Mapping[str, IntExpr]) -> tuple[str, ...] | None:
    """The axes of which an index is the number that they write together, as `4*g + n` where n < 4: outermost
    first. None where it is something else."""
    names = expr.symbols() & extents.keys()
    order: list[str] = []
    step = ONE
    while len(order) < len(names):
        # where axes have one step, several have the same factor: any order is right
        name = next((n for n in sorted(names - {*order}) if expr.coefficient(n) == step), None)
        if name is None:
            return None
        order.append(name)
        step = step * extents[name]
    whole = sum((expr.coefficient(n) or ZERO) * IntExpr.of(n) for n in order) - expr
    return tuple(reversed(order)) if order and whole == ZERO else None


def _links(nests: Sequence[Nest]) -> Iterator[tuple[int, tuple[str, ...], int, tuple[str, ...]]]:
    """Pairs of (nest, digits) that address the same dim of a buffer: one writes it, a later one reads it."""
    for writer, nest in enumerate(nests):
        mine = {a.name: a.extent for a in nest.axes}
        for stage in nest.stages:
            if stage.target.role == "temp":
                continue
            for reader in range(writer + 1, len(nests)):
                theirs = {a.name: a.extent for a in nests[reader].axes}
                for index in _reads(nests[reader], stage.target.name):
                    for one, two in zip(stage.index, index, strict=True):
                        left = digits(one, mine)
                        right = digits(two, theirs) if two is not None else None
                        if left is not None and right is not None:
                            yield writer, left, reader, right


def _reads(nest: Nest, buffer: str) -> Iterator[tuple[IntExpr | None, ...]]:
    for stage in nest.stages:
        for load in loads(stage.value):
            if load.buffer.name == buffer:
                yield tuple(i if isinstance(i, IntExpr) else None for i in load.index)


def _splits(nests: Sequence[Nest]) -> Iterator[tuple[int, str, tuple[IntExpr, ...]]]:
    """Axes that must be cut: (nest, axis, extents of the parts)."""
    extents = [{a.name: a.extent for a in nest.axes} for nest in nests]
    for writer, left, reader, right in _links(nests):
        sides = (writer, left, reader, right), (reader, right, writer, left)
        for one, whole, other, parts in sides:
            if len(whole) == 1 and len(parts) > 1:
                wanted = tuple(extents[other][p] for p in parts)
                if extents[one][whole[0]] == _product(wanted):
                    yield one, whole[0], wanted


def _product(extents: Sequence[IntExpr]) -> IntExpr:
    total = ONE
    for extent in extents:
        total = total * extent
    return total


def _shared(nests: Sequence[Nest]) -> tuple[SharedAxis, ...]:
    classes = _Classes()
    extents = [{a.name: a.extent for a in nest.axes} for nest in nests]
    for writer, left, reader, right in _links(nests):
        if [extents[writer][n] for n in left] == [extents[reader][n] for n in right]:
            for one, two in zip(left, right, strict=True):
                classes.join((writer, one), (reader, two))
    found: list[SharedAxis] = []
    leading = max((n for n, nest in enumerate(nests) if nest.anchor in PRODUCTS), default=len(nests) - 1)
    for axis in nests[leading].axes:
        members = classes.members((leading, axis.name))
        names = dict(members)
        if len(members) == len(nests) == len(names):
            found.append(SharedAxis(axis.extent, tuple(names[n] for n in range(len(nests)))))
    return tuple(found)


class _Classes:
    def __init__(self) -> None:
        self._of: dict[Place, set[Place]] = {}

    def join(self, one: Place, two: Place) -> None:
        joined = self.members(one) | self.members(two)
        for place in joined:
            self._of[place] = joined

    def members(self, place: Place) -> set[Place]:
        return self._of.get(place, {place})
