"""Which nests of a region become a group, and the group that they become.

Worth it are chains of products of tensors that the run computes, as attention has them: what lies between the
products is as large as their results are long, and each point of a shared batch axis needs only its own part.
A product with a constant stays a kernel of its own, since its panels want all rows at once, unless constants
are small beside what lies between.

The batch axes that all nests share become the outer axes. Rows that all share are cut into blocks where the
points would be few, or what they keep would leave the second-level cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, maximum, minimum, product
from cuvil_build.kernel.draft import integers, rewrite
from cuvil_build.kernel.expr import Apply, Buffer, Expr, Load
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.group_access import may_group
from cuvil_build.kernel.group_axes import PRODUCTS, SharedAxis, align, substitute
from cuvil_build.kernel.group_rows import is_worth
from cuvil_build.kernel.group_scratch import in_place
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.kernel.nest import Axis, Nest, Stage, loads
from cuvil_build.kernel.routine import Routine

SCRATCH_BYTES = 256 * 1024
"""What a point may keep: half of a common second-level cache, since lowering knows no target."""
MOST_BYTES = 1024 * 1024
"""What a point may keep where fewer rows would not be worth the panels that each point packs."""
ENOUGH_POINTS = 8
"""For threads to share evenly; with fewer, rows are cut into blocks."""
LEAST_ROWS = 32
"""Of a block in any case."""
SPREAD_ROWS = 64
"""Of a block that is only there to have enough points."""
WORTH_ROWS = 128
"""Of a block for which packing panels costs little; of all blocks where the number of rows is free."""
_TYPICAL = 512
"""Assumed for a free extent of what a point keeps."""
_MOST_HOISTED = 4
_LONGEST = 16
"""Nests in one group."""
_ANCHORS = frozenset("map reduce contraction window copy gather".split())


def group_nests(region: LoweredRegion) -> LoweredRegion:
    """The region with nests joined to groups wherever that is right and worth it."""
    while True:
        joined = next((_joined(region, c, g) for c in _candidates(region) if (g := _grouped(c))), None)
        if joined is None:
            return region
        region = joined


@dataclass(frozen=True, slots=True)
class _Candidate:
    start: int
    stop: int
    """Of the nests in the region."""
    chosen: tuple[int, ...]
    """The group; those between that are left out run before it."""
    nests: tuple[Nest, ...]
    private: frozenset[str]
    """Inner buffers that nothing else in the region touches."""


def _joined(region: LoweredRegion, candidate: _Candidate, group: Group) -> LoweredRegion:
    """With the group in place of its nests."""
    first = [n for n in range(candidate.start, candidate.stop) if n not in candidate.chosen]
    nests = (
        *region.nests[: candidate.start],
        *(region.nests[n] for n in first),
        group,
        *region.nests[candidate.stop :],
    )
    inner = tuple(b for b in region.inner if b.name not in candidate.private)
    return replace(region, inner=inner, nests=nests)


def _candidates(region: LoweredRegion) -> Iterator[_Candidate]:
    """Longest first, then earliest; nests before the first product may be left out."""
    parts = [isinstance(nest, Nest) and _may_be_part(nest) for nest in region.nests]
    products = [n for n, nest in enumerate(region.nests) if parts[n] and nest.anchor in PRODUCTS]
    count = len(region.nests) if len(products) > 1 else 0
    for length in range(min(count, _LONGEST), 1, -1):
        for start in range(count - length + 1):
            numbers = range(start, start + length)
            inside = [n for n in products if n in numbers]
            if len(inside) < 2 or not all(parts[n] for n in numbers):
                continue
            for left_out in _subsets([n for n in numbers if n < inside[0]]):
                if start in left_out or not _may_go_first(region, left_out, start):
                    continue  # a shorter candidate is the same
                chosen = tuple(n for n in numbers if n not in left_out)
                nests = tuple(nest for n in chosen if isinstance(nest := region.nests[n], Nest))
                yield _Candidate(start, start + length, chosen, nests, _private(region, chosen))


def _subsets(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(min(len(numbers), _MOST_HOISTED) + 1):
        yield from itertools.combinations(numbers, size)


def _may_be_part(nest: Nest) -> bool:
    return nest.anchor in _ANCHORS and not nest.sequential and (
        nest.anchor not in PRODUCTS or _factors(nest) is not None
    )  # fmt: skip


def _may_go_first(region: LoweredRegion, numbers: Sequence[int], start: int) -> bool:
    """Whether these nests touch nothing that nests between `start` and them write, nor the reverse."""
    for number in numbers:
        for other in range(start, number):
            if other not in numbers and _conflict(region.nests[other], region.nests[number]):
                return False
    return True


def _conflict(one: Nest | Routine | Group, two: Nest | Routine | Group) -> bool:
    written = [one.written(), two.written()]
    touched = [{b.name for b in n.buffers()} for n in (one, two)]
    return bool(written[0] & touched[1] or written[1] & touched[0])


def _private(region: LoweredRegion, chosen: Sequence[int]) -> frozenset[str]:
    outside = {b.name for n, nest in enumerate(region.nests) if n not in chosen for b in nest.buffers()}
    inside = {b.name for n in chosen for b in region.nests[n].buffers()}
    return frozenset(b.name for b in region.inner if b.name in inside - outside)


# Axes ----------------------------------------------------------------------------------------------------


def _factors(nest: Nest) -> tuple[Expr, ...] | None:
    """Of a product."""
    value = nest.stages[0].value
    is_sum = nest.stages[0].kind == "sum" and isinstance(value, Apply) and value.function == "mul"
    return value.args if is_sum and isinstance(value, Apply) else None


def _mentions(expr: Expr, axis: str) -> bool:
    indices = (i for load in loads(expr) for i in load.index if isinstance(i, IntExpr))
    return any(axis in i.symbols() for i in indices)


def _is_batch(nests: Sequence[Nest], axis: SharedAxis) -> bool:
    """Whether both factors of every product have the axis."""
    return all(
        _mentions(factor, axis.names[n])
        for n, nest in enumerate(nests)
        if nest.anchor in PRODUCTS
        for factor in _factors(nest) or ()
    )


def _streamed_constants(nests: Sequence[Nest], batch: Sequence[SharedAxis]) -> list[Buffer]:
    """Whole constant matrices that every point would read again."""
    found: list[Buffer] = []
    for n, nest in enumerate(nests):
        if nest.anchor not in PRODUCTS:
            continue
        for factor in _factors(nest) or ():
            constants = [load.buffer for load in loads(factor) if load.buffer.constant]
            if constants and not any(_mentions(factor, axis.names[n]) for axis in batch):
                found += constants
    return found


def _are_small(constants: Sequence[Buffer], kept: int) -> bool:
    """Beside what a group keeps: in all, or none at all."""
    sizes = [b.dtype.bytes_of(product(b.shape)) for b in constants]
    plain = all(size.is_static for size in sizes) and not any(b.filter_tile for b in constants)
    return not constants or (plain and is_worth(kept, sum(size.value for size in sizes)))


def _grouped(candidate: _Candidate) -> Group | None:
    """The group, or None where it is not right or not worth it."""
    nests, shared = align(candidate.nests)
    batch = tuple(a for a in shared if _is_batch(nests, a))
    rows = [a for a in shared if a not in batch]
    streamed = _streamed_constants(nests, batch)
    if not shared or (streamed and not rows):
        return None
    whole = _Builder(nests, batch, None, 0, candidate.private)
    if not _are_small(streamed, whole.scratch_bytes()):
        return None
    longest = max(map(_size, rows), default=0)
    # the outermost of those that are about as long: blocks of it lie together
    row = next((a for a in rows if _size(a) * 4 >= longest), None) if streamed else None
    row = row or max(rows, key=_size, default=None)
    block = 0
    if row is not None:
        others = product(a.extent for a in rows if a is not row)
        block = _block(row.extent, others, batch, whole)
    if block:
        whole = _Builder(nests, batch, row, block, candidate.private)
    if (
        not whole.axes
        or not whole.is_bounded
        or (streamed and not block)
        or (not block and whole.scratch_bytes() > SCRATCH_BYTES)
    ):
        return None
    outer = batch if row is None or not block else (*batch, row)
    if not may_group(nests, outer, block, candidate.private):
        return None
    return whole.group()


def _size(axis: SharedAxis) -> int:
    return axis.extent.value if axis.extent.is_static else 1 << 62


def _block(rows: IntExpr, others: IntExpr, batch: Sequence[SharedAxis], whole: _Builder) -> int:
    """Rows of a block; 0: all of them at once."""
    beside = others.value if others.is_static else 1
    total = rows.value if rows.is_static else _TYPICAL
    kept = max(1, whole.scratch_bytes() // total)
    worth = max(1, WORTH_ROWS // beside)
    most = max(SCRATCH_BYTES // kept, min(worth, MOST_BYTES // kept))
    least = max(1, LEAST_ROWS // beside)
    if not rows.is_static:
        return max(least, min(most, worth))
    points = product(a.extent if a.extent.is_static else ONE for a in batch).value
    spread = max(SPREAD_ROWS // beside, total * points // ENOUGH_POINTS)
    wanted = max(least, min(most, spread))
    if wanted >= total:
        return 0
    even = -(-total // -(-total // wanted))
    divisors = [d for d in range(max(least, even // 2), even + 1) if total % d == 0]
    return divisors[-1] if divisors else even


# Building ------------------------------------------------------------------------------------------------


class _Builder:
    """Restricts nests to one point of outer axes, and their private buffers to what a point needs."""

    def __init__(
        self,
        nests: Sequence[Nest],
        batch: Sequence[SharedAxis],
        row: SharedAxis | None,
        block: int,
        private: frozenset[str],
    ) -> None:
        self._block = block
        self._sizes: dict[str, IntExpr] = {}
        """Of the current nest's axes: the most steps that they have at any point."""
        prefix = fresh_prefix(nests)
        shared = (*batch, row) if row is not None and block else tuple(batch)
        self.axes = tuple(
            Axis(f"{prefix}{k}", ceil_divide(a.extent, block) if a is row else a.extent)
            for k, a in enumerate(shared)
        )
        self._outer = {a.name for a in self.axes}
        self._nodes = tuple(dict.fromkeys(name for nest in nests for name in nest.nodes))
        self._anchor = _anchor(nests)
        placed = [self._placed(n, nest, shared, row) for n, nest in enumerate(nests)]
        shrunk = self._shrunk(placed, private)
        varying = self._varying(placed)
        renewed = [self._renewed(nest, shrunk, varying) for nest in placed]
        self._nests, self.scratch = in_place(renewed, [buffer for buffer, _ in shrunk.values()])

    def group(self) -> Group:
        return Group(self._anchor, self.axes, self._nests, self.scratch, self._nodes)

    @property
    def is_bounded(self) -> bool:
        """Whether a point keeps something, and no more than grows with one free size."""
        free = [sum(not d.is_static for d in b.shape) for b in self.scratch]
        return bool(free) and max(free) <= 1

    def scratch_bytes(self) -> int:
        """Of one point, where a free extent is a typical one."""
        total = 0
        for buffer in self.scratch:
            count = product(d if d.is_static else _TYPICAL for d in buffer.shape)
            total += buffer.dtype.bytes_of(count).value
        return total

    def _placed(self, number: int, nest: Nest, shared: Sequence[SharedAxis], row: SharedAxis | None) -> Nest:
        """The nest at a point: outer axes are symbols."""
        values: dict[str, IntExpr] = {}
        extents = {a.name: a.extent for a in nest.axes}
        for axis, own in zip(self.axes, (a.names[number] for a in shared), strict=True):
            values[own] = IntExpr.of(axis.name)
            if row is not None and own == row.names[number]:
                start = IntExpr.of(axis.name) * self._block
                values[own] = start + IntExpr.of(own)
                whole = row.extent.is_static and row.extent.value % self._block == 0
                extents[own] = IntExpr.of(self._block) if whole else minimum(self._block, row.extent - start)
            else:
                del extents[own]
        axes = tuple(Axis(a.name, extents[a.name]) for a in nest.axes if a.name in extents)
        return substitute(replace(nest, axes=axes, nodes=()), values)

    def _split(self, index: IntExpr) -> tuple[IntExpr, IntExpr]:
        """What of an index is the point's, and what is the nest's own."""
        point = IntExpr(tuple(t for t in index.terms if (s := IntExpr((t,)).symbols()) and s <= self._outer))
        return point, index - point

    def _shrunk(
        self, nests: Sequence[Nest], private: frozenset[str]
    ) -> dict[str, tuple[Buffer, tuple[IntExpr, ...]]]:
        """Each private buffer as a point needs it, and what is taken off its indices."""
        touched: dict[str, list[tuple[Nest, Stage, Buffer, tuple[IntExpr | Expr, ...]]]] = {}
        for nest in nests:
            for stage in nest.stages:
                own = [(load.buffer, load.index) for load in loads(stage.value)]
                for buffer, index in [*own, (stage.target, stage.index)]:
                    if buffer.name in private:
                        touched.setdefault(buffer.name, []).append((nest, stage, buffer, index))
        found: dict[str, tuple[Buffer, tuple[IntExpr, ...]]] = {}
        for name, touches in touched.items():
            buffer = touches[0][2]
            dims = [
                self._shrunk_dim([(nest, stage, index[d]) for nest, stage, _, index in touches], extent)
                for d, extent in enumerate(buffer.shape)
            ]
            shape = tuple(extent for extent, _ in dims)
            found[name] = replace(buffer, shape=shape), tuple(start for _, start in dims)
        return found

    def _shrunk_dim(
        self, touches: Sequence[tuple[Nest, Stage, IntExpr | Expr]], extent: IntExpr
    ) -> tuple[IntExpr, IntExpr]:
        """(extent, what is taken off): all touches of a point must start at the same place."""
        starts: set[IntExpr] = set()
        counts: list[IntExpr] = []
        for nest, stage, index in touches:
            start, rest = self._split(index) if isinstance(index, IntExpr) else (ZERO, ZERO)
            count = self._count(rest, (*nest.axes, *stage.axes))
            if count is None or not isinstance(index, IntExpr):
                return extent, ZERO
            starts.add(start)
            counts.append(count)
        if len(starts) > 1 or starts == {ZERO}:
            return extent, ZERO
        return maximum(*counts), starts.pop()

    def _count(self, index: IntExpr, axes: Sequence[Axis]) -> IntExpr | None:
        """One more than the most that an index can be; None where it is not plain."""
        total = index
        for axis in axes:
            factor, total = total.split(axis.name)
            if factor is None or not factor.is_static or factor.value < 0:
                return None
        if not total.is_static or total.value < 0:
            return None
        count = total + 1
        for axis in axes:
            factor = index.coefficient(axis.name)
            assert factor is not None
            count = count + factor * (self._most(axis.extent) - 1)
        return count

    def _most(self, extent: IntExpr) -> IntExpr:
        """Steps of an axis at any point: a block is a whole one."""
        return IntExpr.of(self._block) if extent.symbols() & self._outer else extent

    def _varying(self, nests: Sequence[Nest]) -> frozenset[str]:
        """Constants that no packing fits: points or several nests read them in different ways."""
        readers: dict[str, set[int]] = {}
        found: set[str] = set()
        for number, nest in enumerate(nests):
            for load in (load for stage in nest.stages for load in loads(stage.value)):
                if load.buffer.constant:
                    readers.setdefault(load.buffer.name, set()).add(number)
                    at_point = [i for i in load.index if isinstance(i, IntExpr) and i.symbols() & self._outer]
                    found |= {load.buffer.name} if at_point else set()
        return frozenset(found | {name for name, numbers in readers.items() if len(numbers) > 1})

    def _renewed(
        self,
        nest: Nest,
        shrunk: Mapping[str, tuple[Buffer, tuple[IntExpr, ...]]],
        varying: frozenset[str],
    ) -> Nest:
        def index_of(name: str, index: tuple[IntExpr | Expr, ...]) -> tuple[IntExpr | Expr, ...]:
            starts = shrunk[name][1]
            return tuple(i - s if isinstance(i, IntExpr) else i for i, s in zip(index, starts, strict=True))

        def load(found: Load) -> Expr:
            if found.buffer.name in shrunk:
                return Load(shrunk[found.buffer.name][0], index_of(found.buffer.name, found.index))
            if found.buffer.name in varying:
                return Load(replace(found.buffer, constant=False), found.index)
            return found

        stages: list[Stage] = []
        memo: dict[int, Expr] = {}
        for stage in nest.stages:
            value = rewrite(stage.value, None, load, memo)
            target, index = stage.target, stage.index
            if target.name in shrunk:
                index = tuple(i - s for i, s in zip(index, shrunk[target.name][1], strict=True))
                target = shrunk[target.name][0]
            stages.append(replace(stage, target=target, index=index, value=value))
        return replace(nest, stages=tuple(stages))


def _anchor(nests: Sequence[Nest]) -> str:
    products = [n for n, nest in enumerate(nests) if nest.anchor in PRODUCTS]
    between = nests[products[0] + 1 : products[-1]]
    softmax = any({"max", "sum"} <= {s.kind for s in nest.stages} for nest in between)
    return "attention" if len(products) == 2 and softmax else "group"


def fresh_prefix(nests: Sequence[Nest]) -> str:
    """Of names that no nest uses."""
    taken = {a.name for nest in nests for a in nest.axes}
    for stage in (s for nest in nests for s in nest.stages):
        seen: set[int] = set()
        taken |= {a.name for a in stage.axes} | {s for a in stage.axes for s in a.extent.symbols()}
        taken |= {s for i in (*stage.index, *integers(stage.value, seen)) for s in i.symbols()}
        shapes = (d for load in loads(stage.value) for d in load.buffer.shape)
        taken |= {s for d in (*shapes, *stage.target.shape) for s in d.symbols()}
    taken |= {s for nest in nests for a in nest.axes for s in a.extent.symbols()}
    prefixes = ("g" * n for n in itertools.count(1))
    return next(p for p in prefixes if not any(t.startswith(p) for t in taken))
