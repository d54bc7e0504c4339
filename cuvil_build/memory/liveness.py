"""From a lowered graph to storage: who shares whose bytes, and for how long they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.errors import Internal
from cuvil_build.memory.blocks import Block
from cuvil_build.memory.moves import Move, in_order
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    DefineItem,
    GuardItem,
    LoopItem,
    LoweredGraph,
    MeasureItem,
    RegionItem,
)


@dataclass(frozen=True, slots=True)
class Place:
    kind: str
    """`input` or `output` (with its number), `constant` (with its name, where an alias has another), `arena`
    (with a block's name), or `heap` (with its number): memory that grows, for what has no limit."""
    number: int = 0
    block: str = ""


@dataclass(frozen=True, slots=True)
class CopyOut:
    """A value that must be copied because its storage could not be the result's."""

    source: str
    result: str


@dataclass(frozen=True, slots=True)
class Storage:
    places: dict[str, Place]
    """Of every value that has bytes; inner buffers of a region as `<region>/<buffer>`."""
    blocks: tuple[Block, ...]
    copies: dict[str, tuple[CopyOut, ...]]
    """At the end of a body: `""` for the graph, `<branch>/then` and `<branch>/else`."""
    moves: dict[str, tuple[Move, ...]] = field(default_factory=dict)
    """Of loop states, in an order that is right: `<loop>/first` before the first iteration, `<loop>/next` at
    the end of each one."""
    heaps: int = 0
    """How many heaps there are."""


def inner_name(region: str, buffer: str) -> str:
    return f"{region}/{buffer}"


def assign_storage(graph: LoweredGraph) -> Storage:
    """Aliases share storage with their source; outputs are written where the caller wants them;
    branch results are written by whichever branch runs; a state of a loop has storage of its own through
    the whole loop; all else is a block of the arena, or a heap where no limit of its size is known."""
    walk = _Walk(graph)
    walk.body(graph.body, "")
    return walk.storage()


@dataclass(frozen=True, slots=True)
class _Life:
    name: str
    nbytes: IntExpr
    first: int
    last: int


@dataclass
class _Walk:
    graph: LoweredGraph
    position: int = 0
    aliases: dict[str, str] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=dict)
    """Computed value -> key of the body that computes it."""
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    same_as: dict[str, str] = field(default_factory=dict)
    """Output of a body -> result or state whose storage it writes."""
    extra: list[_Life] = field(default_factory=list)
    """What is no value of the graph: inner buffers of regions, and stops on the way of moves."""
    copies: dict[str, list[CopyOut]] = field(default_factory=dict)
    moves: dict[str, tuple[Move, ...]] = field(default_factory=dict)

    def root(self, name: str) -> str:
        while name in self.aliases:
            name = self.aliases[name]
        return name

    def written(self, name: str) -> str:
        """The value that gave the storage its name."""
        name = self.root(name)
        while name in self.same_as:
            name = self.root(self.same_as[name])
        return name

    def use(self, names: Iterable[str]) -> None:
        for name in names:
            self.last[self.root(name)] = self.position

    def define(self, names: Iterable[str], key: str) -> None:
        for name in names:
            self.owner[name] = key
            self.first[name] = self.position
            self.last[name] = self.position

    def body(self, body: Body, key: str) -> None:
        for item in body.items:
            self.position += 1
            if isinstance(item, AliasItem):
                self.aliases[item.result] = item.source
            elif isinstance(item, RegionItem):
                self.region(item, key)
            elif isinstance(item, BranchItem):
                self.branch(item, key)
            elif isinstance(item, LoopItem):
                self.loop(item, key)
            elif isinstance(item, MeasureItem):
                self.use([item.source])
            else:
                assert isinstance(item, (DefineItem, GuardItem))
        self.position += 1
        self.use(body.outputs)

    def region(self, item: RegionItem, key: str) -> None:
        self.use(item.operands)
        self.define(item.results, key)
        for buffer in item.region.inner:
            nbytes = buffer.dtype.bytes_of(product(buffer.shape))
            self.extra.append(_Life(inner_name(item.name, buffer.name), nbytes, self.position, self.position))

    # Branches ------------------------------------------------------------------------------------

    def branch(self, item: BranchItem, key: str) -> None:
        self.use([item.condition])
        self.define(item.results, key)
        for side, body in (("then", item.then_body), ("else", item.else_body)):
            side_key = f"{item.name}/{side}"
            self.body(body, side_key)
            self.bind(item.results, body.outputs, side_key)
        self.position += 1
        self.use(item.results)

    def bind(self, results: Iterable[str], outputs: Iterable[str], key: str) -> None:
        """Let each output's storage be the result's, or copy at the end of the body."""
        for result, output in zip(results, outputs, strict=True):
            root = self.root(output)
            if self._is_free(root, key) and self._same_bytes(root, result) and self._fits(root, result):
                self.same_as[root] = result
            else:
                self.copies.setdefault(key, []).append(CopyOut(output, result))

    def _is_free(self, root: str, key: str) -> bool:
        """Whether the body itself computes the value, and nobody has decided where."""
        return self.owner.get(root) == key and root not in self.same_as

    def _same_bytes(self, left: str, right: str) -> bool:
        values = self.graph.values
        return values[left].is_row_major and values[right].is_row_major

    def _fits(self, value: str, into: str) -> bool:
        """Whether the storage for one has room for the other, as far as limits go."""
        return self._limit(into) is None or self._limit(value) is not None

    def _limit(self, name: str) -> IntExpr | None:
        return self.graph.size_limit(self.graph.values[name].nbytes)

    # Loops ---------------------------------------------------------------------------------------

    def loop(self, item: LoopItem, key: str) -> None:
        start, formals = self.position, [s.formal for s in item.states]
        self.use([item.condition] if item.condition else [])
        self.use(s.initial for s in item.states)
        self.define([*formals, *item.scanned], key)
        self.aliases |= {s.result: s.formal for s in item.states}
        for name in (*formals, *item.scanned, *item.body.outputs[1:], *(s.initial for s in item.states)):
            self._check_order(item, name)
        self.body(item.body, f"{item.name}/body")
        self.in_place(item)
        self.state_moves(item)
        self.position += 1
        # The next iteration reads again what this one read from outside.
        outside = [n for n, first in self.first.items() if first <= start < self.last[n]]
        self.use([*outside, *formals, *item.scanned])

    def _check_order(self, item: LoopItem, name: str) -> None:
        if not self.graph.values[name].is_row_major:
            raise Internal(f"value '{name}' of loop '{item.name}' is not stored in row-major order")

    def in_place(self, item: LoopItem) -> None:
        """Let next values be written where the state is, once nobody reads the state any more."""
        nexts = item.body.outputs[1 : 1 + len(item.states)]
        for state, output in zip(item.states, nexts, strict=True):
            root = self.root(output)
            if (
                self._is_free(root, f"{item.name}/body")
                and self.last[state.formal] < self.first[root]
                and self._limit(state.formal) in (None, self._limit(root))
            ):
                self.same_as[root] = state.formal

    def state_moves(self, item: LoopItem) -> None:
        values = self.graph.values
        first = [Move(s.initial, s.formal, values[s.initial].nbytes) for s in item.states]
        self.moves[f"{item.name}/first"] = in_order(first, self.written, "")[0]
        outputs = zip(item.states, item.body.outputs[1 : 1 + len(item.states)], strict=True)
        following = [Move(output, state.formal, values[output].nbytes) for state, output in outputs]
        moves, stops = in_order(following, self.written, f"{item.name}/stop")
        self.moves[f"{item.name}/next"] = moves
        self.extra += [_Life(m.target, m.nbytes, self.position, self.position) for m in stops]

    # Storage -------------------------------------------------------------------------------------

    def storage(self) -> Storage:
        lives = [*self.extra]
        for name in self.owner:
            if name not in self.same_as:
                lives.append(_Life(name, self.graph.values[name].nbytes, self.first[name], self.last[name]))
        limits = {life.name: self.graph.size_limit(life.nbytes) for life in lives}
        places = {name: Place("input", i) for i, name in enumerate(self.graph.inputs)}
        places |= {
            n: Place("constant", block=n) for n, v in self.graph.values.items() if v.constant is not None
        }
        heaps = _share_heaps([life for life in lives if limits[life.name] is None])
        places |= {name: Place("heap", number) for name, number in heaps.items()}
        self.outputs(places)
        blocks = []
        for life in lives:
            limit = limits[life.name]
            if life.name not in places:
                assert limit is not None
                blocks.append(Block(life.name, limit, life.first, life.last))
                places[life.name] = Place("arena", block=life.name)
        places |= {name: places[self.written(name)] for name in self.same_as}
        places |= {n: places[self.written(n)] for n in self.aliases if self.written(n) in places}
        copies = {k: tuple(v) for k, v in self.copies.items()}
        return Storage(places, tuple(blocks), copies, self.moves, max(heaps.values(), default=-1) + 1)

    def outputs(self, places: dict[str, Place]) -> None:
        """Where the graph's outputs are computed; what stays in a heap is lent from there."""
        for i, name in enumerate(self.graph.body.outputs):
            root = self.root(name)
            if places.get(root, Place("")).kind == "heap":
                continue
            if self.owner.get(root) == "" and root not in places and self.graph.values[root].is_row_major:
                places[root] = Place("output", i)
            else:
                self.copies.setdefault("", []).append(CopyOut(name, f"output {i}"))


def _share_heaps(lives: Sequence[_Life]) -> Mapping[str, int]:
    """A number for each; those that are never needed at the same time may have the same."""
    busy_to: list[int] = []
    found: dict[str, int] = {}
    for life in sorted(lives, key=lambda v: (v.first, v.name)):
        number = next((i for i, last in enumerate(busy_to) if last < life.first), len(busy_to))
        busy_to[number:] = [life.last, *busy_to[number + 1 :]]
        found[life.name] = number
    return found
