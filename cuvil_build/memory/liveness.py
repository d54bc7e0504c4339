"""From a lowered graph to storage: who shares whose bytes, and for how long they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.errors import Internal
from cuvil_build.kernel.in_place import may_overwrite
from cuvil_build.memory.blocks import Block
from cuvil_build.memory.moves import Move, in_order
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
    in_place: tuple[InPlace, ...] = ()
    positions: tuple[str, ...] = ()
    """What happens at each position of lives: the name of an item, or of a body's end."""
    regions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By position, what runs there."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """The result of an item is written over one of its operands."""

    item: str
    operand: str
    result: str


def inner_name(region: str, buffer: str) -> str:
    return f"{region}/{buffer}"


def assign_storage(graph: LoweredGraph) -> Storage:
    """Aliases share storage with their source; outputs are written where the caller wants them;
    branch results are written by whichever branch runs; a state of a loop has storage of its own through
    the whole loop; all else is a block of the arena, or a heap where no limit of its size is known. A result
    takes over the block of an operand that nobody needs any more, where its kernels allow that."""
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
    runs: list[tuple[int, tuple[RegionItem, ...]]] = field(default_factory=list)
    """What runs at once, with its position."""
    positions: list[str] = field(default_factory=lambda: [""])

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
        """A value that several regions write lives from the first of them on."""
        for name in names:
            if self.owner.setdefault(name, key) != key:
                raise Internal(f"value '{name}' is written by more than one body")
            self.first.setdefault(name, self.position)
            self.last[name] = self.position

    def step(self, name: str) -> None:
        """To the next position."""
        self.position += 1
        self.positions.append(name)

    def body(self, body: Body, key: str) -> None:
        for item in body.items:
            self.step(item_name(item))
            if isinstance(item, AliasItem):
                self.aliases[item.result] = item.source
            elif isinstance(item, RegionItem):
                self.regions((item,), key)
            elif isinstance(item, LaunchItem):
                self.regions(item.items, key)
            elif isinstance(item, BranchItem):
                self.branch(item, key)
            elif isinstance(item, LoopItem):
                self.loop(item, key)
            elif isinstance(item, MeasureItem):
                self.use([item.source])
            else:
                assert isinstance(item, (DefineItem, GuardItem))
        self.step(f"end of {key}" if key else "end")
        self.use(body.outputs)

    def regions(self, items: tuple[RegionItem, ...], key: str) -> None:
        """What runs at once is one position: nothing that one writes is where another reads or writes."""
        self.runs.append((self.position, items))
        for item in items:
            self.use(item.operands)
        for item in items:
            self.define(item.results, key)
            for buffer in item.region.inner:
                nbytes, name = (
                    buffer.dtype.bytes_of(product(buffer.shape)),
                    inner_name(item.name, buffer.name),
                )
                self.extra.append(_Life(name, nbytes, self.position, self.position))

    # Branches ------------------------------------------------------------------------------------

    def branch(self, item: BranchItem, key: str) -> None:
        self.use([item.condition])
        self.define(item.results, key)
        for side, body in (("then", item.then_body), ("else", item.else_body)):
            side_key = f"{item.name}/{side}"
            self.body(body, side_key)
            self.bind(item.results, body.outputs, side_key)
        self.step(f"end of {item.name}")
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
        self.step(f"end of {item.name}")
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
        blocks: dict[str, Block] = {}
        for life in lives:
            limit = limits[life.name]
            if life.name not in places:
                assert limit is not None
                blocks[life.name] = Block(life.name, limit, life.first, life.last)
        pairs = tuple(self.overwritten(blocks))
        places |= {life.name: Place("arena", block=life.name) for life in lives if life.name in blocks}
        for pair in pairs:
            places[pair.result] = places[self.written(pair.operand)]
        places |= {name: places[self.written(name)] for name in self.same_as}
        places |= {n: places[self.written(n)] for n in self.aliases if self.written(n) in places}
        copies = {k: tuple(v) for k, v in self.copies.items()}
        heap_count = max(heaps.values(), default=-1) + 1
        order = tuple(blocks.values())
        regions = {position: tuple(i.name for i in items) for position, items in self.runs}
        return Storage(places, order, copies, self.moves, heap_count, pairs, tuple(self.positions), regions)

    def overwritten(self, blocks: dict[str, Block]) -> Iterator[InPlace]:
        """Lets results take over blocks of operands: those of `blocks` become one, named by the operand's."""
        holder: dict[str, str] = {}
        for position, items in self.runs:
            for item in items:
                others = {self.written(n) for i in items if i is not item for n in (*i.operands, *i.results)}
                for result in dict.fromkeys(item.results):
                    found = self.overwritable(item, result, position, others, blocks, holder)
                    if found is None:
                        continue
                    name = holder.get(self.written(found), self.written(found))
                    holder[result] = name
                    blocks[name] = replace(blocks[name], last=blocks.pop(result).last)
                    yield InPlace(item.name, found, result)

    def overwritable(
        self,
        item: RegionItem,
        result: str,
        position: int,
        others: set[str],
        blocks: Mapping[str, Block],
        holder: Mapping[str, str],
    ) -> str | None:
        """The operand that dies here and lies in a block as large as the result's, if kernels allow it."""
        target = blocks.get(result)
        if target is None or target.first != position or result in others:
            return None  # others write it too, or have begun
        buffers = dict(zip(item.results, item.region.outputs, strict=True))
        for operand in dict.fromkeys(item.operands):
            root = self.written(operand)
            block = blocks.get(holder.get(root, root))
            if block is None or not block.first < position == block.last or root in others:
                continue
            same = [
                buffer
                for name, buffer in zip(item.operands, item.region.inputs)
                if holder.get(self.written(name), self.written(name)) == block.name
            ]
            if block.nbytes == target.nbytes and may_overwrite(item.region, same, buffers[result]):
                return operand
        return None

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


def item_name(item: Item) -> str:
    """What reports call an item."""
    if isinstance(item, (RegionItem, BranchItem, LoopItem)):
        return item.name
    if isinstance(item, LaunchItem):
        return " | ".join(i.name for i in item.items)
    if isinstance(item, AliasItem):
        return f"alias {item.result}"
    return {MeasureItem: "measure", DefineItem: "define", GuardItem: "guard"}[type(item)]


def _share_heaps(lives: Sequence[_Life]) -> Mapping[str, int]:
    """A number for each; those that are never needed at the same time may have the same."""
    busy_to: list[int] = []
    found: dict[str, int] = {}
    for life in sorted(lives, key=lambda v: (v.first, v.name)):
        number = next((i for i, last in enumerate(busy_to) if last < life.first), len(busy_to))
        busy_to[number:] = [life.last, *busy_to[number + 1 :]]
        found[life.name] = number
    return found
