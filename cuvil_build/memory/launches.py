"""Which regions run at once: those that do not depend on each other become one launch, under one barrier.

A region joins the earliest launch that comes after all that it depends on. A barrier costs microseconds, and
threads wait at it for the last one; what joining may cost is memory and cache, so that

- a region moves over others only with results that stay in a cache until they are read (CLOSE_BYTES). Next to
  each other any two may run: that is the order of before, without the barrier between them;
- the most bytes alive at once stay what they were.

Measuring, branches, loops and guards are where they were: whatever follows may rely on what they found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.memory.blocks import ALIGNMENT
from cuvil_build.memory.liveness import Storage, assign_storage
from cuvil_build.memory.sizes import size_points
from cuvil_build.ops.lowered_graph import (
    MAX_JOINED,
    AliasItem,
    Body,
    BranchItem,
    Item,
    LaunchItem,
    LoopItem,
    LoweredGraph,
    MeasureItem,
    RegionItem,
)

CLOSE_BYTES = 256 * 1024
"""Results that wait in the cache of one core, on every CPU that has more than one; at the smallest sizes that
are planned for: where sizes are large, barriers and what is read again cost little beside the work."""
_TRIES = 8
_REACH = 64
"""Launches that a region may move over: what is further away is seldom still in a cache."""


def group_launches(graph: LoweredGraph) -> LoweredGraph:
    """Joins regions of one body where that is legal, and memory stays what it is at every planned size."""
    points = size_points(graph.dims)
    storage = assign_storage(graph)
    before = _peaks(graph, storage, points)
    grouping = _Grouping(graph, points, {pair.result: pair.operand for pair in storage.in_place})
    spare = np.zeros(len(points), np.int64)
    for _ in range(_TRIES):
        found = grouping.with_launches(spare)
        if found == graph:
            break
        excess = _peaks(found, assign_storage(found), points) - before
        if np.all(excess <= 0):
            return found
        spare += np.maximum(excess, 0)  # storage has ways that lives alone don't show
    return graph


def _peaks(graph: LoweredGraph, storage: Storage, points: Sequence[Mapping[str, int]]) -> NDArray[np.int64]:
    """The most bytes of the arena alive at once, at each point."""
    ends = max((block.last for block in storage.blocks), default=0) + 2
    changes = np.zeros((ends, len(points)), np.int64)
    for block in storage.blocks:
        nbytes = _bytes_at(block.nbytes, points)
        changes[block.first] += nbytes
        changes[block.last + 1] -= nbytes
    return np.asarray(changes.cumsum(axis=0).max(axis=0))


def _bytes_at(nbytes: IntExpr, points: Sequence[Mapping[str, int]]) -> NDArray[np.int64]:
    sizes = np.array([nbytes.evaluate(point) for point in points], np.int64)
    return -(-sizes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class _Grouping:
    graph: LoweredGraph
    points: Sequence[Mapping[str, int]]
    in_place: Mapping[str, str]
    """By result: the operand that it is written over, in the order of the graph."""
    sizes: dict[IntExpr, NDArray[np.int64]] = field(default_factory=dict)

    def with_launches(self, spare: NDArray[np.int64]) -> LoweredGraph:
        """`spare`: bytes that must stay free below the peak of a body, where regions join."""
        body = self.body(self.graph.body, spare, {}, self.graph.body.outputs)
        return replace(self.graph, body=body)

    def body(
        self,
        body: Body,
        spare: NDArray[np.int64],
        overwritten: Mapping[str, str],
        outside: Sequence[str] = (),
    ) -> Body:
        """`overwritten`: by output, the loop state that may be written in its place; `outside`: values that
        are not in the arena."""
        body = replace(body, items=tuple(self.inner(item, spare) for item in body.items))
        alone = self.slots(body, overwritten, outside, None)
        if not alone.live:
            return body
        most = np.max(alone.live, axis=0) - spare
        return replace(body, items=self.slots(body, overwritten, outside, most).items())

    def inner(self, item: Item, spare: NDArray[np.int64]) -> Item:
        if isinstance(item, BranchItem):
            then_body, else_body = (self.body(side, spare, {}) for side in (item.then_body, item.else_body))
            return replace(item, then_body=then_body, else_body=else_body)
        if isinstance(item, LoopItem):
            states = {output: s.formal for output, s in zip(item.body.outputs[1:], item.states)}
            return replace(item, body=self.body(item.body, spare, states))
        return item

    def slots(
        self,
        body: Body,
        overwritten: Mapping[str, str],
        outside: Sequence[str],
        most: NDArray[np.int64] | None,
    ) -> _Slots:
        aliases = _roots(body, {})
        readers = _readers(body, aliases)
        # where others read the operand too, they could not run at once with what is written over it
        alone = {r: o for r, o in self.in_place.items() if readers.get(aliases.get(o, o)) == 1}
        roots = _roots(body, alone)
        uses = [frozenset(roots.get(n, n) for n in _reads(item)) for item in body.items]
        slots = _Slots(len(self.points), most, _readers(body, roots))
        free = {roots.get(n, n) for n in outside}
        states = {roots.get(output, output): formal for output, formal in overwritten.items()}
        for item, read in zip(body.items, uses):
            if isinstance(item, AliasItem) and not item.guards:
                slots.alias(item, aliases.get(item.source, item.source))
                continue
            made = {roots.get(n, n): self.nbytes(n) * (roots.get(n, n) not in free) for n in _writes(item)}
            written = {states[n] for n in made if n in states}
            slots.place(item, read, made, frozenset(written), self.inner_bytes(item), self.may_join(item))
        return slots

    def may_join(self, item: Item) -> bool:
        """One nest after the other would need a barrier between them; memory without a limit may move."""
        return (
            isinstance(item, RegionItem)
            and len(item.region.nests) == 1
            and all(self.graph.size_limit(self.graph.values[n].nbytes) is not None for n in item.results)
        )

    def nbytes(self, name: str) -> NDArray[np.int64]:
        return self.bytes_of(self.graph.values[name].nbytes)

    def bytes_of(self, nbytes: IntExpr) -> NDArray[np.int64]:
        """At each point; nothing for what is not in the arena."""
        if nbytes not in self.sizes:
            limit = self.graph.size_limit(nbytes)
            self.sizes[nbytes] = _bytes_at(IntExpr.of(0) if limit is None else limit, self.points)
        return self.sizes[nbytes]

    def inner_bytes(self, item: Item) -> NDArray[np.int64]:
        inner = item.region.inner if isinstance(item, RegionItem) else ()
        none = np.zeros(len(self.points), np.int64)
        return sum((self.bytes_of(b.dtype.bytes_of(product(b.shape))) for b in inner), none)


@dataclass(slots=True)
class _Slots:
    """What runs one after the other, filled in the order of a body."""

    points: int
    """Sizes for which bytes are counted."""
    most: NDArray[np.int64] | None
    """Bytes that may be alive at once where regions join; None: nothing joins."""
    readers: dict[str, int]
    """How many that are not placed yet read a value."""
    held: list[list[Item]] = field(default_factory=list)
    joinable: list[bool] = field(default_factory=list)
    live: list[NDArray[np.int64]] = field(default_factory=list)
    """Bytes alive in each slot, as far as all that is placed tells."""
    aliases: dict[int, list[AliasItem]] = field(default_factory=dict)
    """By the slot after which they stand."""
    floor: int = 0
    """The first slot that what comes next may join."""
    defined: dict[str, int] = field(default_factory=dict)
    """By value: the slot of what writes it first. The following ones go by memory."""
    first_written: dict[str, int] = field(default_factory=dict)
    last_written: dict[str, int] = field(default_factory=dict)
    last_read: dict[str, int] = field(default_factory=dict)
    nbytes: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    open_bytes: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """Of what is written and has readers that are not placed yet."""

    def alias(self, item: AliasItem, value: str) -> None:
        """As soon as the value is there, since whatever reads it may have moved."""
        self.aliases.setdefault(self.defined.get(value, -1), []).append(item)

    def place(
        self,
        item: Item,
        reads: frozenset[str],
        writes: Mapping[str, NDArray[np.int64]],
        overwrites: frozenset[str],
        inner: NDArray[np.int64],
        may_join: bool,
    ) -> None:
        """`writes`: values with their bytes; `overwrites`: what nobody may read any more."""
        new = {n: size for n, size in writes.items() if n not in self.first_written}
        dying = [n for n in reads if n in self.nbytes and self.readers[n] == 1]
        slot = None
        if may_join and not item.guards and self.most is not None:
            first = self.earliest(reads, writes, overwrites)
            slot = next((s for s in range(first, len(self.held)) if self.fits(s, new, dying, inner)), None)
        if slot is None:
            slot = self.open(may_join)
        self.held[slot].append(item)
        for name in _writes(item):
            self.defined.setdefault(name, slot)
        self.live[slot:] = self.live_from(slot, new, dying, inner)
        for name in reads:
            self.readers[name] -= 1
            self.last_read[name] = max(self.last_read.get(name, -1), slot)
        for name in writes:
            self.first_written.setdefault(name, slot)
            self.last_written[name] = max(self.last_written.get(name, -1), slot)
        self.nbytes |= new
        for name in (*reads, *new):
            self.open_bytes.pop(name, None)
            if self.readers.get(name) and name in self.nbytes:
                self.open_bytes[name] = self.nbytes[name]
        if not isinstance(item, RegionItem):
            self.floor = len(self.held)
        elif item.guards:
            self.floor = slot

    def open(self, joinable: bool) -> int:
        """A slot of its own: what is written and still read is alive there."""
        self.live.append(sum(self.open_bytes.values(), np.zeros(self.points, np.int64)))
        self.held.append([])
        self.joinable.append(joinable)
        return len(self.held) - 1

    def earliest(self, reads: Iterable[str], writes: Iterable[str], overwrites: Iterable[str]) -> int:
        """After all that it reads is written, and nobody reads any more what it writes; a part of a value not
        before its first part."""
        after = [self.last_written.get(n, -1) + 1 for n in reads]
        after += [self.last_read.get(n, -1) + 1 for n in (*writes, *overwrites)]
        after += [self.first_written.get(n, 0) for n in writes]
        return max(self.floor, len(self.held) - _REACH, *after)

    def fits(
        self,
        slot: int,
        new: Mapping[str, NDArray[np.int64]],
        dying: Sequence[str],
        inner: NDArray[np.int64],
    ) -> bool:
        assert self.most is not None
        if not self.joinable[slot] or len(self.held[slot]) >= MAX_JOINED:
            return False
        if slot < len(self.held) - 1 and new and np.min(sum(new.values())) > CLOSE_BYTES:
            return False
        return all(np.all(live <= self.most) for live in self.live_from(slot, new, dying, inner))

    def live_from(
        self,
        slot: int,
        new: Mapping[str, NDArray[np.int64]],
        dying: Sequence[str],
        inner: NDArray[np.int64],
    ) -> list[NDArray[np.int64]]:
        """The bytes alive in this slot and each later one, with an item in this one: its new values live from
        there on, what it reads as the last one until there."""
        live = self.live[slot:]
        live[0] = live[0] + inner
        for name, size in new.items():
            for number in range(len(live) if self.readers.get(name) else 1):
                live[number] = live[number] + size
        for name in dying:
            for number in range(max(self.last_read.get(name, -1) - slot, 0) + 1, len(live)):
                live[number] = live[number] - self.nbytes[name]
        return live

    def items(self) -> tuple[Item, ...]:
        found: list[Item] = [*self.aliases.get(-1, ())]
        for slot, held in enumerate(self.held):
            regions = tuple(item for item in held if isinstance(item, RegionItem))
            found += [LaunchItem(regions)] if len(regions) > 1 else held
            found += self.aliases.get(slot, ())
        return tuple(found)


def _roots(body: Body, in_place: Mapping[str, str]) -> dict[str, str]:
    """Of every alias and every result written over an operand, those of inner bodies included, the value
    whose memory it is."""
    found: dict[str, str] = {}
    for item in _all_items(body):
        if isinstance(item, AliasItem):
            found[item.result] = found.get(item.source, item.source)
        elif isinstance(item, (RegionItem, LaunchItem)):
            for name in _writes(item):
                if name in in_place:
                    found[name] = found.get(in_place[name], in_place[name])
        elif isinstance(item, LoopItem):
            found |= {s.result: s.formal for s in item.states}
    return found


def _readers(body: Body, roots: Mapping[str, str]) -> dict[str, int]:
    """How many items read the memory of a value; what comes after the body counts as one."""
    found: dict[str, int] = {}
    for names in (*map(_reads, body.items), body.outputs):
        for name in {roots.get(n, n) for n in names}:
            found[name] = found.get(name, 0) + 1
    return found


def _all_items(body: Body) -> Iterable[Item]:
    for item in body.items:
        yield item
        for inner in _bodies(item):
            yield from _all_items(inner)


def _bodies(item: Item) -> tuple[Body, ...]:
    if isinstance(item, BranchItem):
        return item.then_body, item.else_body
    return (item.body,) if isinstance(item, LoopItem) else ()


def _reads(item: Item) -> list[str]:
    """Values that are read while the item runs."""
    own: list[str] = []
    if isinstance(item, RegionItem):
        own = [*item.operands]
    elif isinstance(item, LaunchItem):
        own = [n for region in item.items for n in region.operands]
    elif isinstance(item, MeasureItem):
        own = [item.source]
    elif isinstance(item, BranchItem):
        own = [item.condition]
    elif isinstance(item, LoopItem):
        own = [*([item.condition] if item.condition else []), *(s.initial for s in item.states)]
    for body in _bodies(item):
        own += [*(n for inner in body.items for n in _reads(inner)), *body.outputs]
    return own


def _writes(item: Item) -> list[str]:
    if isinstance(item, (RegionItem, BranchItem)):
        return [*item.results]
    if isinstance(item, LaunchItem):
        return [n for region in item.items for n in region.results]
    if isinstance(item, LoopItem):
        return [*(s.formal for s in item.states), *item.scanned]
    return []
