"""The order of items is part of the plan: one in which fewer bytes are alive at once.

Items of one body change places; nothing leaves its body. An item stays after the writers of what it reads,
and after every check, measured number and definition that came before it: a check may protect it. Branches
and loops keep what is before and behind them apart. A greedy order and the given one are improved by moving
single items, within a budget of steps, so that the result is the same everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.errors import Internal
from cuvil_build.kernel.in_place import may_overwrite
from cuvil_build.memory.blocks import aligned
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    DefineItem,
    GuardItem,
    Item,
    LaunchItem,
    LoopItem,
    LoweredGraph,
    MeasureItem,
    RegionItem,
)

BUDGET = 60_000
"""Items walked over, for each body."""

Orders = Mapping[str, Sequence[int]]
"""By key of a body (`""`, `<branch>/then`, `<branch>/else`, `<loop>/body`): source positions of its items, as
they run. A body that is not there keeps its order."""


def find_orders(graph: LoweredGraph, sizes: Mapping[str, int], budget: int = BUDGET) -> dict[str, list[int]]:
    """Of the bodies where another order has a lower peak at these sizes."""
    found: dict[str, list[int]] = {}
    for key, body in bodies(graph.body, ""):
        problem = _Problem.of(graph, body, sizes)
        order = _Search(problem, budget).run()
        if order != list(range(len(body.items))):
            found[key] = order
    return found


def reordered(graph: LoweredGraph, orders: Orders) -> LoweredGraph:
    """The graph with its items in these orders."""
    return replace(graph, body=_reordered(graph.body, "", orders)) if orders else graph


def bodies(body: Body, key: str) -> Iterator[tuple[str, Body]]:
    """A body and all inside of it, outer ones first."""
    yield key, body
    for item in body.items:
        for inner_key, inner in _inner(item):
            yield from bodies(inner, inner_key)


def _inner(item: Item) -> tuple[tuple[str, Body], ...]:
    if isinstance(item, BranchItem):
        return (f"{item.name}/then", item.then_body), (f"{item.name}/else", item.else_body)
    return ((f"{item.name}/body", item.body),) if isinstance(item, LoopItem) else ()


def _reordered(body: Body, key: str, orders: Orders) -> Body:
    items = [_inner_reordered(item, orders) for item in body.items]
    order = orders.get(key, range(len(items)))
    if sorted(order) != list(range(len(items))):
        raise Internal(f"the order of '{key}' is not one of its {len(items)} items")
    return Body(tuple(items[n] for n in order), body.outputs)


def _inner_reordered(item: Item, orders: Orders) -> Item:
    if isinstance(item, BranchItem):
        return replace(
            item,
            then_body=_reordered(item.then_body, f"{item.name}/then", orders),
            else_body=_reordered(item.else_body, f"{item.name}/else", orders),
        )
    if isinstance(item, LoopItem):
        return replace(item, body=_reordered(item.body, f"{item.name}/body", orders))
    return item


# What an order is about ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Step:
    """One item."""

    uses: list[int]
    """Storages that it reads."""
    makes: list[int]
    over: dict[int, list[int]]
    """Storages that one of `makes` may be written over."""
    transient: int
    """Bytes that it needs only while it runs."""
    before: set[int] = field(default_factory=set)
    """Items that must have run."""


@dataclass
class _Problem:
    steps: list[_Step]
    nbytes: list[int]
    """Of each storage."""
    readers: list[set[int]]
    """Items that read or write a storage; what is needed after the body has one more, `len(steps)`."""

    @staticmethod
    def of(graph: LoweredGraph, body: Body, sizes: Mapping[str, int]) -> _Problem:
        return _Reader(graph, sizes).problem(body)

    def floor(self) -> int:
        """The bytes that some item needs by itself: no order has a lower peak."""
        return max((self._alone(step) for step in self.steps), default=0)

    def _alone(self, step: _Step) -> int:
        apart = [s for s in step.makes if not step.over.get(s)]
        return sum(self.nbytes[s] for s in (*step.uses, *apart)) + step.transient

    def peak(self, order: Sequence[int]) -> tuple[int, int]:
        """The most bytes that are alive at once, and how far items are from where they stood: neighbours in
        the source are in caches together."""
        left = [len(r) for r in self.readers]
        live = most = 0
        held = [0] * len(self.nbytes)
        """Bytes that a storage still holds: none once another was written over it."""
        for n in order:
            step = self.steps[n]
            for s in (*step.uses, *step.makes):
                left[s] -= 1
            taken: set[int] = set()
            fresh = 0
            for s in step.makes:
                if left[s] != len(self.readers[s]) - 1:
                    continue  # another item has begun it
                over = next(
                    (o for o in step.over.get(s, ()) if not left[o] and held[o] and o not in taken), None
                )
                held[s] = self.nbytes[s]
                if over is None:
                    fresh += held[s]
                else:
                    taken.add(over)
                    held[over] = 0
            live += fresh
            most = max(most, live + step.transient)
            for s in (*step.uses, *step.makes):
                if not left[s]:
                    live -= held[s]
                    held[s] = 0
        return most, sum(abs(n - place) for place, n in enumerate(order))


class _Reader:
    """Reads a problem from a body."""

    def __init__(self, graph: LoweredGraph, sizes: Mapping[str, int]) -> None:
        self.graph, self.sizes = graph, sizes
        self.number: dict[str, int] = {}
        """Of the storage that a value lies in, for what the body makes."""
        self.problem_ = _Problem([], [], [])
        self.writers: dict[str, set[int]] = {}

    def problem(self, body: Body) -> _Problem:
        found = self.problem_
        last_check = -1
        fences: list[int] = []
        for n, item in enumerate(body.items):
            step = self.step(n, item)
            step.before |= {last_check, *fences[-1:]} - {-1}
            if isinstance(item, (BranchItem, LoopItem)):
                step.before |= set(range(n))
                fences.append(n)
            if item.guards or isinstance(item, (MeasureItem, DefineItem, GuardItem)):
                last_check = n
            found.steps.append(step)
        for name in body.outputs:
            if name in self.number:
                found.readers[self.number[name]].add(len(found.steps))
        return found

    def step(self, n: int, item: Item) -> _Step:
        read, made = _reads(item), _makes(item)
        before = set().union(*(self.writers.get(name, ()) for name in read))
        if isinstance(item, AliasItem):
            self.writers.setdefault(item.result, set()).add(n)
            if item.source in self.number:
                self.number[item.result] = self.number[item.source]
            return _Step([], [], {}, 0, before)
        uses = sorted({self.number[name] for name in read if name in self.number})
        for name in made:
            self.writers.setdefault(name, set()).add(n)
            if name not in self.number:
                self.number[name] = len(self.problem_.nbytes)
                self.problem_.nbytes.append(self.bytes_of(self.graph.values[name].nbytes, name))
                self.problem_.readers.append(set())
        makes = sorted({self.number[name] for name in made})
        step = _Step(
            [s for s in uses if s not in makes], makes, self.over(item), self.transient(item), before
        )
        for s in (*step.uses, *step.makes):
            self.problem_.readers[s].add(n)
        return step

    def bytes_of(self, nbytes: IntExpr, name: str = "") -> int:
        """Of a block; nothing for what is no block of the arena."""
        limit = self.graph.size_limit(nbytes)
        return 0 if limit is None or name in self.graph.body.outputs else aligned(limit).evaluate(self.sizes)

    def over(self, item: Item) -> dict[int, list[int]]:
        """As `memory.liveness` decides it, if the operand dies."""
        found: dict[int, list[int]] = {}
        regions = item.items if isinstance(item, LaunchItem) else (item,)
        for region in regions:
            if not isinstance(region, RegionItem):
                continue
            others = {self.number.get(v) for r in regions if r is not region for v in _reads(r)}
            for result, target in zip(region.results, region.region.outputs):
                made = self.number[result]
                candidates = sorted({self.number[v] for v in region.operands if v in self.number} - others)
                for s in candidates:
                    same = [
                        b for v, b in zip(region.operands, region.region.inputs) if self.number.get(v) == s
                    ]
                    nbytes = self.problem_.nbytes
                    if nbytes[s] == nbytes[made] > 0 and may_overwrite(region.region, same, target):
                        found.setdefault(made, []).append(s)
        return found

    def transient(self, item: Item) -> int:
        if isinstance(item, LaunchItem):
            return sum(self.transient(i) for i in item.items)
        if isinstance(item, RegionItem):
            return sum(self.bytes_of(b.dtype.bytes_of(product(b.shape))) for b in item.region.inner)
        return 0


def _reads(item: Item) -> set[str]:
    """Values, those that inner bodies read included."""
    if isinstance(item, AliasItem):
        return {item.source}
    if isinstance(item, RegionItem):
        return set(item.operands)
    if isinstance(item, LaunchItem):
        return set().union(*(_reads(i) for i in item.items))
    if isinstance(item, MeasureItem):
        return {item.source}
    found = {item.condition} if isinstance(item, (BranchItem, LoopItem)) else set()
    if isinstance(item, LoopItem):
        found |= {s.initial for s in item.states}
    for _, body in _inner(item):
        found |= {*body.outputs, *(name for i in body.items for name in _reads(i))}
    return found


def _makes(item: Item) -> list[str]:
    if isinstance(item, RegionItem):
        return list(dict.fromkeys(item.results))
    if isinstance(item, LaunchItem):
        return list(dict.fromkeys(name for i in item.items for name in _makes(i)))
    if isinstance(item, BranchItem):
        return list(item.results)
    return [*(s.result for s in item.states), *item.scanned] if isinstance(item, LoopItem) else []


# The search ----------------------------------------------------------------------------------------


class _Search:
    def __init__(self, problem: _Problem, budget: int) -> None:
        self.problem, self.left = problem, budget
        self.count = len(problem.steps)
        self.after: list[set[int]] = [set() for _ in range(self.count)]
        for n, step in enumerate(problem.steps):
            for before in step.before:
                self.after[before].add(n)

    def run(self) -> list[int]:
        """The given order unless another one has a lower peak."""
        source = list(range(self.count))
        given = self.cost(source)
        if given[0] <= self.problem.floor():
            return source
        best, least = source, given
        starts = sorted((source, self.late(), self.greedy()), key=self.cost)
        for number, start in enumerate(starts):
            if best is not source and least[0] <= self.problem.floor():
                break
            order, cost = self.improved(start, self.left // (len(starts) - number))
            if cost < least:
                best, least = order, cost
        return best if least[0] < given[0] else source

    def cost(self, order: Sequence[int]) -> tuple[int, int]:
        self.left -= self.count
        return self.problem.peak(order)

    def greedy(self) -> list[int]:
        """Of what may run, the item after which the fewest bytes are alive; of equal ones the first."""
        problem = self.problem
        waiting = [len(step.before) for step in problem.steps]
        left = [len(r) for r in problem.readers]
        begun = [False] * len(problem.nbytes)
        ready = sorted(n for n in range(self.count) if not waiting[n])
        order: list[int] = []
        while ready:
            chosen = min(ready, key=lambda n: (self.growth(n, left, begun), n))
            ready.remove(chosen)
            order.append(chosen)
            step = problem.steps[chosen]
            for s in (*step.uses, *step.makes):
                left[s] -= 1
                begun[s] = True
            for n in sorted(self.after[chosen]):
                waiting[n] -= 1
                if not waiting[n]:
                    ready.append(n)
        return order

    def growth(self, n: int, left: Sequence[int], begun: Sequence[bool]) -> int:
        step, nbytes = self.problem.steps[n], self.problem.nbytes
        made = sum(nbytes[s] for s in step.makes if not begun[s] and left[s] > 1)
        return made - sum(nbytes[s] for s in step.uses if left[s] == 1)

    def late(self) -> list[int]:
        """Each item just before the first that needs it."""
        order: list[int] = []
        done: set[int] = set()
        for last in (n for n in range(self.count) if not self.after[n]):
            pending = [(last, False)]
            while pending:
                n, is_ready = pending.pop()
                if n in done:
                    continue
                if is_ready:
                    done.add(n)
                    order.append(n)
                    continue
                pending.append((n, True))
                pending += ((m, False) for m in sorted(self.problem.steps[n].before, reverse=True))
        return order

    def improved(self, order: list[int], budget: int) -> tuple[list[int], tuple[int, int]]:
        """Moves single items as far as they may go; equal steps are taken too."""
        rng = random.Random(0)
        cost = least = self.cost(order)
        best = current = order
        end = self.left - budget
        while self.left > end and self.count > 2:
            changed = self.moved(current, rng)
            if changed is None:
                self.left -= 1
                continue
            found = self.cost(changed)
            if found <= cost:
                current, cost = changed, found
            if found < least:
                best, least = changed, found
        return best, least

    def moved(self, order: list[int], rng: random.Random) -> list[int] | None:
        place = rng.randrange(self.count)
        n = order[place]
        before, after = self.problem.steps[n].before, self.after[n]
        first = place
        while first and order[first - 1] not in before:
            first -= 1
        last = place
        while last + 1 < self.count and order[last + 1] not in after:
            last += 1
        if first == last:
            return None
        goal = rng.randrange(first, last)
        goal += goal >= place
        if rng.random() < 0.5:
            goal = min(max(n, first), last)  # as near to where it stood as it may
        rest = order[:place] + order[place + 1 :]
        return [*rest[:goal], n, *rest[goal:]]
