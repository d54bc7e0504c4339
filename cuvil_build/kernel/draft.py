"""Turns one view into one nest: finds its reductions, splits axes, orders the stages.

While views are evaluated, a reduction or a kept row is a `Load` of a buffer whose role is `pending`.
The draft of a nest collects them as statements, chooses the outer axes that they share, and replaces
them by loads of `temp` buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, exact_divide, product
from cuvil_build.errors import Internal
from cuvil_build.kernel.blocks import without_weights
from cuvil_build.kernel.expr import TEMP, Apply, Buffer, Cast, Const, Expr, IndexValue, Load, Local, Within
from cuvil_build.kernel.nest import Axis, Nest, Stage, children
from cuvil_build.kernel.split import find_split, simplify
from cuvil_build.kernel.view import Index, View, within

PENDING = "pending"
HEAVY = ("contraction", "window")


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """What a nest computes before the expression that loads it: a reduction, or a kept row."""

    buffer: Buffer
    kind: str
    """A reduction of `kernel.nest.REDUCTIONS`, or `store` for a kept row."""
    anchor: str
    row: tuple[int, ...]
    """The dims that a kept row's own loops run over."""
    extents: tuple[IntExpr, ...]
    """Of the loops: the reduced axes, or the row's dims."""
    body: Callable[[Index, Index], Expr]
    """(index of the element, loop variables) -> what is combined or kept."""
    view: View


@dataclass(slots=True, eq=False)
class Statement:
    """A pending value at one index of the nest."""

    pending: Pending
    index: Index
    """Without the entries of the row dims."""
    axes: list[str]
    value: Expr
    guarded: bool
    """Met under a condition: it may not be valid, or not needed, everywhere."""


Key = tuple[str, Index]
MapInt = Callable[[IntExpr], IntExpr]
MapLoad = Callable[[Load], Expr]


def rewrite(expr: Expr, map_int: MapInt | None, map_load: MapLoad | None, memo: dict[int, Expr]) -> Expr:
    """Replace integer expressions first, then loads; shared operands stay shared."""
    known = memo.get(id(expr))
    if known is not None:
        return known
    result = _rewritten(expr, map_int or (lambda value: value), map_load, memo)
    memo[id(expr)] = result
    return result


def _rewritten(expr: Expr, map_int: MapInt, map_load: MapLoad | None, memo: dict[int, Expr]) -> Expr:
    def again(inner: Expr) -> Expr:
        return rewrite(inner, map_int, map_load, memo)

    if isinstance(expr, (Const, Local)):
        return expr
    if isinstance(expr, IndexValue):
        return IndexValue(map_int(expr.index), expr.dtype)
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(again(a) for a in expr.args), expr.dtype)
    if isinstance(expr, Cast):
        return Cast(again(expr.value), expr.dtype)
    if isinstance(expr, Within):
        conditions = [(map_int(a), map_int(b), map_int(c)) for a, b, c in expr.conditions]
        return within(conditions, again(expr.value), again(expr.otherwise))
    index = tuple(map_int(i) if isinstance(i, IntExpr) else again(i) for i in expr.index)
    load = Load(expr.buffer, index)
    return load if map_load is None else map_load(load)


def integers(expr: Expr, seen: set[int]) -> Iterator[IntExpr]:
    """Every integer expression once per expression object."""
    if id(expr) in seen:
        return
    seen.add(id(expr))
    if isinstance(expr, IndexValue):
        yield expr.index
    elif isinstance(expr, Load):
        yield from (i for i in expr.index if isinstance(i, IntExpr))
    elif isinstance(expr, Within):
        for condition in expr.conditions:
            yield from condition
    for child in children(expr):
        yield from integers(child, seen)


def loads_with_guard(
    expr: Expr, guarded: bool = False, seen: set[tuple[int, bool]] | None = None
) -> Iterator[tuple[Load, bool]]:
    """Loads, and whether each stands under a condition."""
    seen = set() if seen is None else seen
    if (id(expr), guarded) in seen:
        return
    seen.add((id(expr), guarded))
    if isinstance(expr, Load):
        yield expr, guarded
    for child in children(expr):
        yield from loads_with_guard(child, guarded or isinstance(expr, Within), seen)


@dataclass(slots=True)
class Draft:
    """A nest in the making: the store of `view` into `target`."""

    view: View
    pending: Mapping[str, Pending]
    replaced: Mapping[str, Callable[[Index], Expr]]
    """What earlier drafts decided: pending values that now lie in memory, or are computed in place."""
    space: list[str] = field(default_factory=list)
    extents: dict[str, IntExpr] = field(default_factory=dict)
    statements: dict[Key, Statement] = field(default_factory=dict)
    root: Expr = field(init=False)
    index: Index = field(init=False)
    outer: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        entries: list[IntExpr] = []
        for extent in self.view.shape:
            entries.append(self._loop(extent, self.space))
        self.index = tuple(entries)
        self.root = self._resolve(self.view.at(self.index))
        self._expand(self.root)
        self._split_axes()

    # Building ------------------------------------------------------------------------------------

    def _loop(self, extent: IntExpr, axes: list[str]) -> IntExpr:
        """A new loop variable; a loop of one pass needs none."""
        if extent == ONE:
            return ZERO
        name = f"%{len(self.extents)}"
        self.extents[name] = extent
        axes.append(name)
        return IntExpr.of(name)

    def _resolve(self, expr: Expr) -> Expr:
        memo: dict[int, Expr] = {}

        def load(found: Load) -> Expr:
            replacement = self.replaced.get(found.buffer.name) if found.buffer.role == PENDING else None
            if replacement is None:
                return found
            return self._resolve(replacement(integer_index(found)))

        return rewrite(expr, None, load, memo) if self.replaced else expr

    def _expand(self, expr: Expr) -> None:
        for load, guarded in loads_with_guard(expr):
            if load.buffer.role != PENDING:
                continue
            pending = self.pending[load.buffer.name]
            key = _key(pending, load)
            if key in self.statements:
                self.statements[key].guarded |= guarded
                continue
            axes: list[str] = []
            loops = tuple(self._loop(extent, axes) for extent in pending.extents)
            value = self._resolve(pending.body(integer_index(load), loops))
            self.statements[key] = Statement(pending, key[1], axes, value, guarded)
            self._expand(value)

    def _split_axes(self) -> None:
        self._substitute({})
        for _ in range(64):
            found = find_split(self._integers(), self.extents)
            if found is None:
                return
            name, low_extent = found
            quotient = exact_divide(self.extents[name], low_extent)
            assert quotient is not None
            pair: list[str] = []
            high, low = self._loop(quotient, pair), self._loop(low_extent, pair)
            for axes in (self.space, *(s.axes for s in self.statements.values())):
                if name in axes:
                    at = axes.index(name)
                    axes[at : at + 1] = pair
            self._substitute({name: high * low_extent + low})
        raise Internal(f"axes of {self.view.shape} don't stop splitting")

    def _substitute(self, values: Mapping[str, IntExpr]) -> None:
        cache: dict[IntExpr, IntExpr] = {}

        def mapped(expr: IntExpr) -> IntExpr:
            if expr not in cache:
                cache[expr] = simplify(expr.substitute(values), self.extents)
            return cache[expr]

        memo: dict[int, Expr] = {}
        keep_alive = [self.root, *(s.value for s in self.statements.values())]
        self.root = rewrite(self.root, mapped, None, memo)
        self.index = tuple(map(mapped, self.index))
        changed: dict[Key, Statement] = {}
        for (name, _), statement in self.statements.items():
            index = tuple(map(mapped, statement.index))
            value = rewrite(statement.value, mapped, None, memo)
            twin = changed.get((name, index))
            guarded = statement.guarded or (twin is not None and twin.guarded)
            changed[name, index] = Statement(statement.pending, index, statement.axes, value, guarded)
        self.statements = changed
        del keep_alive

    def _integers(self) -> Iterator[IntExpr]:
        seen: set[int] = set()
        yield from self.index
        yield from integers(self.root, seen)
        for statement in self.statements.values():
            yield from statement.index
            heavy = statement.pending.anchor in HEAVY
            for value in without_weights(statement.value, self.extents) if heavy else (statement.value,):
                yield from integers(value, seen)

    # Choosing the outer axes ---------------------------------------------------------------------

    def misfits(self) -> list[tuple[Pending, bool]]:
        """Pending values that can't be computed inside this nest, with whether each must go to memory
        (else it is computed in place); none: the outer axes are chosen."""
        bad = [s for s in self.statements.values() if self._misplaced(s)]
        if bad:
            return _once(bad)
        self.outer = self._shared_axes()
        reductions = [s for s in self.statements.values() if s.pending.kind != "store"]
        if not reductions:
            return _once(list(self.statements.values()))
        heavy = [s for s in reductions if s.pending.anchor in HEAVY]
        if heavy and set(self.outer) != set(self.space):
            return _once(heavy)
        extra = [s for s in heavy[1:] if s.pending is not heavy[0].pending]
        misfit = extra or [
            s for s in self.statements.values() if s not in heavy and self._loops_used(s) != set(self.outer)
        ]
        if misfit:
            return _once([s for s in misfit if s.pending.kind != "store"] or misfit)
        return _once(heavy) if len(heavy) > 1 else []

    def _misplaced(self, statement: Statement) -> bool:
        used = set().union(*(entry.symbols() for entry in statement.index)) & self.extents.keys()
        if statement.guarded or not used <= set(self.space):
            return True
        return statement.pending.kind != "store" and not self._is_injective(statement.index, used)

    def _is_injective(self, index: Index, used: set[str]) -> bool:
        """Whether no two points of the used axes meet the same element: nothing is computed twice."""
        single = [entry.symbols() & self.extents.keys() for entry in index]
        separate = sum(len(s) for s in single) == len(used) and all(len(s) <= 1 for s in single)
        if separate and all(self._is_affine(entry) for entry in index):
            return True
        points = product(self.extents[name] for name in sorted(used))
        covered = ONE
        for entry, names in zip(index, single):
            if names:
                highest = entry.substitute({n: self.extents[n] - 1 for n in sorted(names)})
                covered = covered * (highest + 1)
        return points == covered

    def _is_affine(self, entry: IntExpr) -> bool:
        return all(entry.coefficient(name) is not None for name in entry.symbols() & self.extents.keys())

    def _loops_used(self, statement: Statement) -> set[str]:
        return set().union(*(entry.symbols() for entry in statement.index)) & self.extents.keys()

    def _shared_axes(self) -> list[str]:
        """A contraction's or window's axes; else those of most reductions; all axes without any."""
        reductions = [s for s in self.statements.values() if s.pending.kind != "store"]
        if not reductions:
            return list(self.space)
        heavy = [s for s in reductions if s.pending.anchor in HEAVY]
        candidates = [frozenset(self._loops_used(s)) for s in heavy[:1] or reductions]
        chosen = max(candidates, key=lambda c: (candidates.count(c), -candidates.index(c)))
        return [name for name in self.space if name in chosen]

    # Emission ------------------------------------------------------------------------------------

    def emit(
        self, target: Buffer, offset: Index, fresh: Callable[[str], str], nodes: tuple[str, ...]
    ) -> Nest:
        """The nest, once there are no misfits."""
        stages: list[Stage] = []
        done: dict[Key, Buffer] = {}

        def place(load: Load) -> Expr:
            if load.buffer.role != PENDING:
                return load
            pending = self.pending[load.buffer.name]
            key = _key(pending, load)
            if key not in done:
                done[key] = emit_statement(self.statements[key])
            index = tuple(load.index[d] for d in pending.row)
            return Load(done[key], index)

        def emit_statement(statement: Statement) -> Buffer:
            pending = statement.pending
            value = rewrite(statement.value, None, place, {})
            shape = pending.extents if pending.kind == "store" else ()
            temp = Buffer(fresh("t"), pending.buffer.dtype, shape, tuple(range(len(shape))), TEMP)
            index = self._row_index(statement, shape)
            axes = tuple(Axis(name, self.extents[name]) for name in statement.axes)
            stages.append(Stage(axes, pending.kind, temp, index, value))
            return temp

        value = rewrite(self.root, None, place, {})
        rest = tuple(Axis(n, self.extents[n]) for n in self.space if n not in self.outer)
        index = tuple(a + b for a, b in zip(self.index, offset))
        stages.append(Stage(rest, "store", target, index, value))
        axes = tuple(Axis(n, self.extents[n]) for n in self.outer)
        return renamed(Nest(self._anchor(), axes, tuple(stages), nodes=nodes))

    def _row_index(self, statement: Statement, shape: tuple[IntExpr, ...]) -> Index:
        """The index of a kept row in its temp: its loops, which may have been split."""
        names = list(statement.axes)
        entries: list[IntExpr] = []
        for extent in shape:
            entry, covered = ZERO, ONE
            while covered != extent:
                name = names.pop(0)
                entry = entry * self.extents[name] + IntExpr.of(name)
                covered = covered * self.extents[name]
            entries.append(entry)
        return tuple(entries)

    def _anchor(self) -> str:
        anchors = [s.pending.anchor for s in self.statements.values() if s.pending.kind != "store"]
        heavy = [a for a in anchors if a in HEAVY]
        if anchors:
            return heavy[0] if heavy else "reduce"
        if any(not isinstance(i, IntExpr) for load, _ in loads_with_guard(self.root) for i in load.index):
            return "gather"
        moved = self.root.value if isinstance(self.root, Within) else self.root
        return "copy" if isinstance(moved, (Load, Const)) else "map"


def renamed(nest: Nest) -> Nest:
    """Loop variables named in order: i of the nest, j of store stages, r of reductions."""
    taken = _size_names(nest)
    names: dict[str, IntExpr] = {}

    def name_axes(axes: tuple[Axis, ...], prefix: str) -> tuple[Axis, ...]:
        for axis in axes:
            number = sum(1 for v in names.values() if str(v).startswith(prefix))
            while f"{prefix}{number}" in taken:
                number += 1
            taken.add(f"{prefix}{number}")
            names[axis.name] = IntExpr.of(f"{prefix}{number}")
        return tuple(Axis(str(names[a.name]), a.extent) for a in axes)

    outer = name_axes(nest.axes, "i")
    own = [name_axes(s.axes, "j" if s.kind == "store" else "r") for s in nest.stages]
    memo: dict[int, Expr] = {}
    stages = [
        Stage(
            axes,
            stage.kind,
            stage.target,
            tuple(i.substitute(names) for i in stage.index),
            rewrite(stage.value, lambda value: value.substitute(names), None, memo),
        )
        for axes, stage in zip(own, nest.stages)
    ]
    sequential = tuple(str(names[name]) for name in nest.sequential if name in names)
    return Nest(nest.anchor, outer, tuple(stages), sequential, nest.nodes)


def _size_names(nest: Nest) -> set[str]:
    loops = {axis.name for axis in nest.axes} | {axis.name for s in nest.stages for axis in s.axes}
    found: set[str] = set()
    for buffer in nest.buffers():
        for extent in buffer.shape:
            found |= extent.symbols()
    for axis in (*nest.axes, *(axis for stage in nest.stages for axis in stage.axes)):
        found |= axis.extent.symbols()
    seen: set[int] = set()
    for stage in nest.stages:
        for expr in integers(stage.value, seen):
            found |= expr.symbols()
    return found - loops


def _key(pending: Pending, load: Load) -> Key:
    index = integer_index(load)
    return pending.buffer.name, tuple(e for d, e in enumerate(index) if d not in pending.row)


def integer_index(load: Load) -> Index:
    entries: list[IntExpr] = []
    for entry in load.index:
        if not isinstance(entry, IntExpr):
            raise Internal(f"{load.buffer.name} isn't in memory, and is indexed by loaded values")
        entries.append(entry)
    return tuple(entries)


def _once(statements: list[Statement]) -> list[tuple[Pending, bool]]:
    found = {s.pending.buffer.name: s.pending for s in statements}
    return [(pending, pending.kind != "store") for pending in found.values()]
