"""Runs a graph in one flat arena at the planned offsets, with poison wherever nothing is alive.

Every block is filled with 0xFF bytes (NaN, or -1) right before its first write and right after its last
use, so that a wrong life, offset or order gives a wrong result. Regions of one launch run in any order. A
nest that writes over its operand runs piece by piece, in any order too: a read of what another piece has
written is then seen.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from cuvil_build.cuir.dtypes import pack_bits
from cuvil_build.cuir.int_expr import IntExpr, product
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.expr import Apply, Buffer, Cast, Expr, IndexValue, Load, Within
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.nest import Axis, Nest
from cuvil_build.memory.blocks import Block
from cuvil_build.memory.liveness import Place, inner_name
from cuvil_build.memory.plan import GraphPlan, plan_graph
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    DefineItem,
    Item,
    LaunchItem,
    LoopItem,
    MeasureItem,
    RegionItem,
)
from cuvil_build.passes.assign_layouts import order_of
from tests.ops.run_graph import GraphRun

POISON = 0xFF
PIECES = 3


def run_poisoned(model: ir.Model, inputs: Mapping[str, np.ndarray], seed: int = 0) -> list[np.ndarray]:
    """Outputs of a CU-IR graph, fused or not, in the order of the graph."""
    graph = lower_graph(model, infer_model(model, annotate=False), order_of)
    return run_plan(plan_graph(graph), inputs, seed)


def run_plan(plan: GraphPlan, inputs: Mapping[str, np.ndarray], seed: int = 0) -> list[np.ndarray]:
    """Raises `tests.ops.run_graph.GuardFailed` where the module would refuse the inputs."""
    sizes = {d.name: inputs[d.source[0]].shape[d.source[1]] for d in plan.graph.dims.values()}
    before = {name: array.copy() for name, array in inputs.items()}
    run = PoisonedRun(plan.graph, sizes, dict(inputs), plan=plan, rng=random.Random(seed))
    outputs = run.outputs()
    for name, array in before.items():
        assert inputs[name].tobytes() == array.tobytes(), f"input '{name}' was written to"
    return outputs


@dataclass
class PoisonedRun(GraphRun):
    plan: GraphPlan = field(kw_only=True)
    rng: random.Random = field(default_factory=random.Random)
    arena: np.ndarray = field(init=False)
    offsets: dict[str, int] = field(init=False)
    sizes_of: dict[str, int] = field(init=False)
    """Bytes of each block."""
    starts: dict[int, list[Block]] = field(default_factory=dict)
    ends: dict[int, list[Block]] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)
    """Positions, by identity of an item or a body (its end), and of what follows an item."""
    after: dict[int, int] = field(default_factory=dict)
    loose: dict[Place, np.ndarray] = field(default_factory=dict)
    """Bytes of outputs and heaps."""
    fixed: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        memory = self.plan.memory
        values = dict(self.sizes)
        for name, expr in memory.definitions:
            values[name] = expr.evaluate(values)
        self.arena = np.full(memory.arena.evaluate(values), POISON, np.uint8)
        self.offsets = {name: offset.evaluate(values) for name, offset in memory.offsets.items()}
        self.sizes_of = {b.name: b.nbytes.evaluate(values) for b in self.plan.storage.blocks}
        for block in self.plan.storage.blocks:
            self.starts.setdefault(block.first, []).append(block)
            self.ends.setdefault(block.last, []).append(block)
            assert self.offsets[block.name] >= 0, block
            assert self.offsets[block.name] + self.sizes_of[block.name] <= self.arena.size, block
        last = self.number_positions(self.graph.body, 0)
        assert last == len(self.plan.storage.positions) - 1

    def number_positions(self, body: Body, position: int) -> int:
        for item in body.items:
            position += 1
            self.at[id(item)] = position
            for inner in _inner_bodies(item):
                position = self.number_positions(inner, position)
            if isinstance(item, (BranchItem, LoopItem)):
                position += 1
                self.after[id(item)] = position
        self.at[id(body)] = position + 1
        return position + 1

    def poison(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self.block(block.name)[:] = POISON

    def block(self, name: str) -> np.ndarray:
        return self.arena[self.offsets[name] : self.offsets[name] + self.sizes_of[name]]

    # Memory --------------------------------------------------------------------------------------

    def raw(self, name: str, nbytes: int) -> np.ndarray:
        """The bytes of a value, an inner buffer, or a stop of a move."""
        place = self.plan.storage.places[name]
        if place.kind == "constant":
            return self.constant(place.block)
        if place.kind == "input":
            return (
                np.ascontiguousarray(self.arrays[self.graph.inputs[place.number]]).reshape(-1).view(np.uint8)
            )
        if place.kind == "arena":
            found = self.block(place.block)
            assert nbytes <= found.size, f"'{name}' has {nbytes} bytes, its block {found.size}"
            return found[:nbytes]
        found = self.loose.get(place, np.zeros(0, np.uint8))
        if found.size < nbytes:
            grown = np.full(nbytes, POISON, np.uint8)
            grown[: found.size] = found
            found = self.loose[place] = grown
        return found[:nbytes]

    def constant(self, name: str) -> np.ndarray:
        if name not in self.fixed:
            value = self.graph.values[name]
            assert value.constant is not None
            physical = np.ascontiguousarray(value.constant.transpose(value.order))
            self.fixed[name] = pack_bits(physical.reshape(-1))
            self.fixed[name].flags.writeable = False
        return self.fixed[name]

    def raw_value(self, name: str) -> np.ndarray:
        value = self.graph.values[name]
        return self.raw(name, self.number(value.nbytes))

    def value(self, name: str) -> np.ndarray:
        value = self.graph.values[name]
        return self.viewed(self.raw_value(name), Buffer(name, value.dtype, value.shape, value.order, "input"))

    def viewed(self, data: np.ndarray, buffer: Buffer) -> np.ndarray:
        """Bytes as the logical array that kernels see."""
        shape = tuple(self.number(d) for d in buffer.shape)
        if buffer.dtype.is_packed:
            return data
        count = int(np.prod(shape, dtype=np.int64)) * buffer.dtype.nbytes
        physical = data[:count].view(buffer.dtype.numpy).reshape([shape[d] for d in buffer.order])
        return physical.transpose(np.argsort(buffer.order)) if shape else physical

    # Running -------------------------------------------------------------------------------------

    def outputs(self) -> list[np.ndarray]:
        self.run(self.graph.body, "")
        found = []
        for number, name in enumerate(self.graph.body.outputs):
            value = self.graph.values[name]
            place = self.plan.storage.places[name]
            if place.kind != "heap":
                place = Place("output", number)
            nbytes = self.number(value.nbytes)
            data = self.loose.get(place, np.zeros(0, np.uint8))[:nbytes]
            row_major = tuple(range(len(value.shape)))
            found.append(
                self.viewed(data, Buffer(name, value.dtype, value.shape, row_major, "output")).copy()
            )
        return found

    def run(self, body: Body, key: str) -> None:
        for item in body.items:
            self.guards(item.guards)
            self.poison(self.starts.get(self.at[id(item)], ()))
            self.step(item)
            self.poison(self.ends.get(self.after.get(id(item), self.at[id(item)]), ()))
        for copy in self.plan.storage.copies.get(key, ()):
            self.copy_out(copy.source, copy.result)

    def end(self, body: Body) -> None:
        """Of a branch's or a loop's body, with what is done there."""
        self.poison(self.ends.get(self.at[id(body)], ()))

    def step(self, item: Item) -> None:
        if isinstance(item, RegionItem):
            self.regions([item])
        elif isinstance(item, LaunchItem):
            self.regions(self.rng.sample(item.items, len(item.items)))
        elif isinstance(item, BranchItem):
            self.branch(item)
        elif isinstance(item, LoopItem):
            self.loop(item)
        elif isinstance(item, MeasureItem):
            self.measure(item)
        elif isinstance(item, DefineItem):
            for symbol, value in item.values:
                self.sizes[symbol] = self.number(value)
        else:
            assert self.guards is not None and (isinstance(item, AliasItem) or item.guards)

    def copy_out(self, source: str, result: str) -> None:
        data = self.raw_value(source)
        if result.startswith("output "):
            self.loose[Place("output", int(result[7:]))] = data.copy()
        else:
            self.raw(result, data.size)[:] = data

    def regions(self, items: Sequence[RegionItem]) -> None:
        for item in items:
            region = item.region
            memory = {
                b.name: self.viewed(
                    self.raw(inner_name(item.name, b.name), self.number(b.dtype.bytes_of(product(b.shape)))),
                    b,
                )
                for b in region.inner
            }
            own = len(region.inputs) - len(region.tables)
            rows = [*zip(region.inputs[:own], item.operands), *zip(region.outputs, item.results)]
            used = {b.name for nest in region.nests for b in nest.buffers()}
            memory |= {b.name: self.viewed(self.raw_value(n), b) for b, n in rows if b.name in used}
            memory |= {b.name: table for b, table in zip(region.inputs[own:], region.tables)}
            pairs = {p.result for p in self.plan.storage.in_place if p.item == item.name}
            over = {b.name for b, name in zip(region.outputs, item.results) if name in pairs}
            for nest in region.nests:
                for piece in self.pieces(nest, over) if isinstance(nest, Nest) else [nest]:
                    interpret(piece, memory, self.sizes)

    def branch(self, item: BranchItem) -> None:
        taken = bool(self.value(item.condition).reshape(()))
        body, side = (item.then_body, "then") if taken else (item.else_body, "else")
        self.run(body, f"{item.name}/{side}")
        self.end(body)
        for symbol, then_value, else_value in item.locals:
            self.sizes[symbol] = self.number(then_value if taken else else_value)

    def loop(self, item: LoopItem) -> None:
        self.sizes |= {d.symbol: self.number(d.initial) for d in item.dims}
        self.moves(f"{item.name}/first")
        trips = None if item.trips is None else self.number(item.trips)
        again = not item.condition or bool(self.value(item.condition).reshape(()))
        count = 0
        while again and (trips is None or count < trips):
            self.sizes[item.iteration] = count
            self.run(item.body, f"{item.name}/body")
            again = bool(self.value(item.body.outputs[0]).reshape(()))
            for result, element in zip(item.scanned, item.body.outputs[1 + len(item.states) :], strict=True):
                data = self.raw_value(element)
                self.raw(result, (count + 1) * data.size)[count * data.size :] = data
            following = {d.symbol: self.number(d.next) for d in item.dims}
            self.moves(f"{item.name}/next")
            self.end(item.body)
            self.sizes |= following
            count += 1
        self.sizes[item.count] = count

    def moves(self, key: str) -> None:
        for move in self.plan.storage.moves.get(key, ()):
            nbytes = self.number(move.nbytes)
            data = self.raw(move.source, nbytes)[:nbytes].copy()
            self.raw(move.target, nbytes)[:] = data

    # Pieces of nests -----------------------------------------------------------------------------

    def pieces(self, nest: Nest, over: Container[str]) -> list[Nest]:
        """The nest; where it writes over what it reads (`over`), ranges of its outer axes that together are
        all of them, in any order."""
        if not any(stage.target.name in over for stage in nest.stages):
            return [nest]
        carried = analyse(nest).carried
        ranges = []
        for axis in nest.axes:
            extent = self.number(axis.extent)
            cuts: set[int] = set()
            if axis.name not in carried and extent > 1:
                cuts = {self.rng.randrange(1, extent) for _ in range(PIECES - 1)}
            ranges.append(list(itertools.pairwise([0, *sorted(cuts), extent])))
        found = [_part(nest, part) for part in itertools.product(*ranges)]
        self.rng.shuffle(found)
        return found


def _inner_bodies(item: Item) -> tuple[Body, ...]:
    if isinstance(item, BranchItem):
        return item.then_body, item.else_body
    return (item.body,) if isinstance(item, LoopItem) else ()


def _part(nest: Nest, ranges: Sequence[tuple[int, int]]) -> Nest:
    """The points of a nest in these ranges of its axes."""
    moved = {a.name: IntExpr.of(a.name) + start for a, (start, _) in zip(nest.axes, ranges)}
    known: dict[int, Expr] = {}
    stages = tuple(
        replace(
            stage,
            axes=tuple(Axis(a.name, a.extent.substitute(moved)) for a in stage.axes),
            index=tuple(i.substitute(moved) for i in stage.index),
            value=_shifted(stage.value, moved, known),
        )
        for stage in nest.stages
    )
    axes = tuple(Axis(a.name, IntExpr.of(stop - start)) for a, (start, stop) in zip(nest.axes, ranges))
    return replace(nest, axes=axes, stages=stages)


def _shifted(expr: Expr, moved: Mapping[str, IntExpr], known: dict[int, Expr]) -> Expr:
    if id(expr) not in known:
        known[id(expr)] = _rebuilt(expr, moved, known)
    return known[id(expr)]


def _rebuilt(expr: Expr, moved: Mapping[str, IntExpr], known: dict[int, Expr]) -> Expr:
    if isinstance(expr, IndexValue):
        return replace(expr, index=expr.index.substitute(moved))
    if isinstance(expr, Load):
        index = tuple(
            i.substitute(moved) if isinstance(i, IntExpr) else _shifted(i, moved, known) for i in expr.index
        )
        return replace(expr, index=index)
    if isinstance(expr, Apply):
        return replace(expr, args=tuple(_shifted(a, moved, known) for a in expr.args))
    if isinstance(expr, Cast):
        return replace(expr, value=_shifted(expr.value, moved, known))
    if isinstance(expr, Within):
        conditions = tuple(
            (low.substitute(moved), index.substitute(moved), high.substitute(moved))
            for low, index, high in expr.conditions
        )
        value, otherwise = (_shifted(e, moved, known) for e in (expr.value, expr.otherwise))
        return Within(conditions, value, otherwise)
    return expr
