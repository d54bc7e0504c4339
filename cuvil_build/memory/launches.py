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

from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.memory.blocks import aligned
from cuvil_build.memory.bound import lower_bound
from cuvil_build.memory.liveness import assign_storage
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
"""Results that wait in the cache of one core, on every CPU that has more than one."""
_TRIES = 8
_REACH = 64
"""Launches that a region may move over: what is further away is seldom still in a cache."""


def group_launches(graph: LoweredGraph) -> LoweredGraph:
    """Joins regions of one body where that is legal, and memory stays what it is."""
    before = _peak(graph)
    spare = 0
    for _ in range(_TRIES):
        found = _Grouping(graph, spare).graph_of_launches()
        excess = _peak(found) - before
        if excess <= 0:
            return found
        spare += excess  # the model knows nothing of results in place of operands
    return graph


def _peak(graph: LoweredGraph) -> int:
    """The most bytes of the arena alive at once, at the reference sizes."""
    blocks, sizes = assign_storage(graph).blocks, graph.reference_sizes()
    return lower_bound(blocks, {b.name: aligned(b.nbytes).evaluate(sizes) for b in blocks})


@dataclass(frozen=True, slots=True)
class _Grouping:
    graph: LoweredGraph
    spare: int
    """Bytes that must stay free below the peak of a body, where regions join."""

    def graph_of_launches(self) -> LoweredGraph:
        return replace(self.graph, body=self.body(self.graph.body, {}, self.graph.body.outputs))

    def body(self, body: Body, overwritten: Mapping[str, str], outside: Sequence[str] = ()) -> Body:
        """`overwritten`: by output, the loop state that may be written in its place; `outside`: values that
        are not in the arena."""
        items = tuple(self.inner(item) for item in body.items)
        body = replace(body, items=items)
        alone = self.slots(body, overwritten, outside, None)
        most = max(alone.live, default=0) - self.spare
        return replace(body, items=self.slots(body, overwritten, outside, most).items())

    def inner(self, item: Item) -> Item:
        if isinstance(item, BranchItem):
            return replace(
                item, then_body=self.body(item.then_body, {}), else_body=self.body(item.else_body, {})
            )
        if isinstance(item, LoopItem):
            states = zip(item.body.outputs[1:], item.states)
            return replace(item, body=self.body(item.body, {output: s.formal for output, s in states}))
        return item

    def slots(
        self, body: Body, overwritten: Mapping[str, str], outside: Sequence[str], most: int | None
    ) -> _Slots:
        roots = _roots(body)
        uses = [frozenset(roots.get(n, n) for n in _reads(item)) for item in body.items]
        slots = _Slots(roots, most)
        for read in (*uses, frozenset(roots.get(n, n) for n in body.outputs)):
            for name in read:
                slots.readers[name] = slots.readers.get(name, 0) + 1
        free = {roots.get(n, n) for n in outside}
        states = {roots.get(output, output): formal for output, formal in overwritten.items()}
        for item, read in zip(body.items, uses):
            if isinstance(item, AliasItem) and not item.guards:
                slots.alias(item)
                continue
            made = {n: 0 if n in free else self.nbytes(n) for n in _writes(item)}
            written = {states[n] for n in made if n in states}
            slots.place(item, read, made, frozenset(written), self.inner_bytes(item), self.may_join(item))
        return slots

    def may_join(self, item: Item) -> bool:
        """One nest after the other would need a barrier between them; memory without a limit may move."""
        return (
            isinstance(item, RegionItem)
            and len(item.region.nests) == 1
            and all(self.limit(n) is not None for n in item.results)
        )

    def limit(self, name: str) -> IntExpr | None:
        return self.graph.size_limit(self.graph.values[name].nbytes)

    def nbytes(self, name: str) -> int:
        limit = self.limit(name)
        return 0 if limit is None else aligned(limit).evaluate(self.graph.reference_sizes())

    def inner_bytes(self, item: Item) -> int:
        if not isinstance(item, RegionItem):
            return 0
        sizes = [self.graph.size_limit(b.dtype.bytes_of(product(b.shape))) for b in item.region.inner]
        known = self.graph.reference_sizes()
        return sum(aligned(size).evaluate(known) for size in sizes if size is not None)


@dataclass(slots=True)
class _Slots:
    """What runs one after the other, filled in the order of a body."""

    roots: Mapping[str, str]
    most: int | None
    """Bytes that may be alive at once where regions join; None: nothing joins."""
    readers: dict[str, int] = field(default_factory=dict)
    """How many that are not placed yet read a value."""
    held: list[list[Item]] = field(default_factory=list)
    joinable: list[bool] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    """Bytes alive in each slot, as far as all that is placed tells."""
    aliases: dict[int, list[AliasItem]] = field(default_factory=dict)
    """By the slot after which they stand."""
    floor: int = 0
    """The first slot that what comes next may join."""
    first_written: dict[str, int] = field(default_factory=dict)
    last_written: dict[str, int] = field(default_factory=dict)
    last_read: dict[str, int] = field(default_factory=dict)
    nbytes: dict[str, int] = field(default_factory=dict)

    def alias(self, item: AliasItem) -> None:
        root = self.roots.get(item.source, item.source)
        self.aliases.setdefault(self.first_written.get(root, -1), []).append(item)

    def place(
        self,
        item: Item,
        reads: frozenset[str],
        writes: Mapping[str, int],
        overwrites: frozenset[str],
        inner: int,
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
        self.live[slot:] = self.live_from(slot, new, dying, inner)
        for name in reads:
            self.readers[name] -= 1
            self.last_read[name] = max(self.last_read.get(name, -1), slot)
        for name in writes:
            self.first_written.setdefault(name, slot)
            self.last_written[name] = max(self.last_written.get(name, -1), slot)
        self.nbytes |= new
        if not isinstance(item, RegionItem):
            self.floor = len(self.held)
        elif item.guards:
            self.floor = slot

    def open(self, joinable: bool) -> int:
        """A slot of its own: what is written and still read is alive there."""
        alive = (n for n in self.nbytes if self.readers.get(n))
        self.live.append(sum(self.nbytes[n] for n in alive))
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

    def fits(self, slot: int, new: Mapping[str, int], dying: Sequence[str], inner: int) -> bool:
        assert self.most is not None
        if not self.joinable[slot] or len(self.held[slot]) >= MAX_JOINED:
            return False
        if slot < len(self.held) - 1 and sum(new.values()) > CLOSE_BYTES:
            return False
        return max(self.live_from(slot, new, dying, inner)) <= self.most

    def live_from(self, slot: int, new: Mapping[str, int], dying: Sequence[str], inner: int) -> list[int]:
        """The bytes alive in this slot and each later one, with an item in this one: its new values live from
        there on, what it reads as the last one until there."""
        live = self.live[slot:]
        live[0] += inner
        for name, size in new.items():
            for number in range(len(live) if self.readers.get(name) else 1):
                live[number] += size
        for name in dying:
            for number in range(max(self.last_read.get(name, -1) - slot, 0) + 1, len(live)):
                live[number] -= self.nbytes[name]
        return live

    def items(self) -> tuple[Item, ...]:
        found: list[Item] = [*self.aliases.get(-1, ())]
        for slot, held in enumerate(self.held):
            regions = tuple(item for item in held if isinstance(item, RegionItem))
            found += [LaunchItem(regions)] if len(regions) > 1 else held
            found += self.aliases.get(slot, ())
        return tuple(found)


def _roots(body: Body) -> dict[str, str]:
    """Of every alias, those of inner bodies included, the value whose memory it is."""
    found: dict[str, str] = {}
    for item in _all_items(body):
        if isinstance(item, AliasItem):
            found[item.result] = found.get(item.source, item.source)
        elif isinstance(item, LoopItem):
            found |= {s.result: s.formal for s in item.states}
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
