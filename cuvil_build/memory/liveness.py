"""From a lowered graph to storage: who shares whose bytes, and for how long they are needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.memory.blocks import Block
from cuvil_build.ops.lowered_graph import AliasItem, Body, BranchItem, GuardItem, LoweredGraph, RegionItem


@dataclass(frozen=True, slots=True)
class Place:
    kind: str
    """`input` or `output` (with its number), `constant` or `arena` (with a block's name)."""
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


def inner_name(region: str, buffer: str) -> str:
    return f"{region}/{buffer}"


def assign_storage(graph: LoweredGraph) -> Storage:
    """Aliases share storage with their source; outputs are written where the caller wants them;
    branch results are written by whichever branch runs; all else is a block of the arena."""
    walk = _Walk(graph)
    walk.body(graph.body, "")
    return walk.storage()


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
    """Branch output -> result whose storage it writes."""
    inner: list[Block] = field(default_factory=list)
    copies: dict[str, list[CopyOut]] = field(default_factory=dict)

    def root(self, name: str) -> str:
        while name in self.aliases:
            name = self.aliases[name]
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
            else:
                assert isinstance(item, GuardItem)
        self.position += 1
        self.use(body.outputs)

    def region(self, item: RegionItem, key: str) -> None:
        self.use(item.operands)
        self.define(item.results, key)
        for buffer in item.region.inner:
            nbytes = self.graph.size_limit(_product(buffer.shape) * buffer.dtype.nbytes)
            self.inner.append(Block(inner_name(item.name, buffer.name), nbytes, self.position, self.position))

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
            mine = self.owner.get(root) == key and root not in self.same_as
            if mine and self._same_bytes(root, result):
                self.same_as[root] = result
            else:
                self.copies.setdefault(key, []).append(CopyOut(output, result))

    def _same_bytes(self, left: str, right: str) -> bool:
        values = self.graph.values
        return values[left].is_row_major and values[right].is_row_major

    def storage(self) -> Storage:
        places = {name: Place("input", i) for i, name in enumerate(self.graph.inputs)}
        places |= {n: Place("constant") for n, v in self.graph.values.items() if v.constant is not None}
        for i, name in enumerate(self.graph.body.outputs):
            root = self.root(name)
            if self.owner.get(root) == "" and root not in places and self.graph.values[root].is_row_major:
                places[root] = Place("output", i)
            else:
                self.copies.setdefault("", []).append(CopyOut(name, f"output {i}"))
        blocks = list(self.inner)
        for name in self.owner:
            if name not in places and name not in self.same_as:
                nbytes = self.graph.size_limit(self.graph.values[name].nbytes)
                blocks.append(Block(name, nbytes, self.first[name], self.last[name]))
                places[name] = Place("arena", block=name)
        places |= {b.name: Place("arena", block=b.name) for b in self.inner}
        for name in self.same_as:
            target = name
            while target in self.same_as:
                target = self.same_as[target]
            places[name] = places[self.root(target)]
        places |= {name: places[self.root(name)] for name in self.aliases if self.root(name) in places}
        return Storage(places, tuple(blocks), {k: tuple(v) for k, v in self.copies.items()})


def _product(shape: tuple[IntExpr, ...]) -> IntExpr:
    total = IntExpr.of(1)
    for dim in shape:
        total = total * dim
    return total
