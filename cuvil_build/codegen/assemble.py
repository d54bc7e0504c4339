"""From a lowered graph, its memory plan and a target to the module plan and its packed weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cuvil_build.codegen.c_names import unique_identifiers
from cuvil_build.codegen.kernels import EmittedKernel
from cuvil_build.codegen.plan import (
    Branch,
    BufferSpec,
    Call,
    Copy,
    Ensure,
    Guard,
    Instruction,
    KernelSpec,
    Launch,
    LocalSymbol,
    Loop,
    ModulePlan,
    ReadSymbol,
    SetSymbol,
    SetSymbols,
    SymbolSpec,
    TensorSpec,
)
from cuvil_build.cuir.dtypes import DTYPES, pack_bits
from cuvil_build.cuir.int_expr import ZERO, IntExpr, product
from cuvil_build.cuir.limits import Limits, limits_of
from cuvil_build.errors import Internal, NotYet
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.packing import Packing, pack
from cuvil_build.kernel.routine import Routine
from cuvil_build.memory.blocks import MemoryPlan
from cuvil_build.memory.liveness import CopyOut, Place, Storage, inner_name
from cuvil_build.ops.lowered_graph import (
    AliasItem,
    Body,
    BranchItem,
    DefineItem,
    GraphGuard,
    GraphValue,
    GuardItem,
    Item,
    LaunchItem,
    LoopItem,
    LoweredGraph,
    MeasureItem,
    RegionItem,
)

_LOWEST = -(2**63)
_LONG = 16
"""A chunk is long where it is more than this part of a launch."""


@dataclass(frozen=True, slots=True)
class WeightBlock:
    """One block of the weights file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    nbytes: int
    data: Callable[[], np.ndarray]
    """One-dimensional, contiguous; made when asked for, so that only one block is in memory."""


@dataclass(slots=True)
class WeightPool:
    """The blocks of a weights file; modules that share a file share the pool."""

    blocks: list[WeightBlock] = field(default_factory=list)
    _ids: dict[tuple[str, Packing | None], int] = field(default_factory=dict)

    def add(self, value: GraphValue, packing: Packing | None) -> int:
        """The number of the block that holds a constant in one packing."""
        key = (value.digest or value.name, packing)
        if key not in self._ids:
            self._ids[key] = len(self.blocks)
            self.blocks.append(_weight_block(value, packing, len(self.blocks)))
        return self._ids[key]


@dataclass(frozen=True, slots=True)
class Assembled:
    """A module plan whose weight buffers still hold block numbers instead of offsets."""

    plan: ModulePlan

    def with_weights(self, offsets: Sequence[int], nbytes: int, digest: bytes, id_offset: int) -> ModulePlan:
        """The plan for a weights file that holds the blocks at these offsets."""
        buffers = tuple(
            replace(b, offset=IntExpr.of(offsets[b.offset.value])) if b.place == "weight" else b
            for b in self.plan.buffers
        )
        return replace(
            self.plan, buffers=buffers, weights_nbytes=nbytes, weights_id=digest, weights_id_offset=id_offset
        )


@dataclass(frozen=True, slots=True)
class ModuleNames:
    """What the graph does not know about the module."""

    model: str
    target: str
    version: str
    digest: str
    features: tuple[str, ...] = ()


def assemble(
    graph: LoweredGraph,
    storage: Storage,
    memory: MemoryPlan,
    emit: Callable[[Nest | Routine | Group], EmittedKernel],
    names: ModuleNames,
    weights: WeightPool,
) -> Assembled:
    """`emit` turns a nest into a kernel of the target; constants go to the pool."""
    assembler = _Assembler(graph, storage, memory, emit, weights)
    body = (*assembler.multiples(), *assembler.body(graph.body, ""))
    inputs = _tensors(graph, graph.inputs, "input", assembler)
    outputs = _tensors(graph, graph.body.outputs, "output", assembler)
    limits = {d.name: d.spec.maximum for d in graph.dims.values()}
    known = {n: m for n, m in limits.items() if m is not None}
    plan = ModulePlan(
        name=names.model,
        target=names.target,
        version=names.version,
        digest=names.digest,
        inputs=inputs,
        outputs=outputs,
        symbols=tuple(
            SymbolSpec(
                d.name,
                d.spec.minimum,
                d.spec.maximum,
                (graph.inputs.index(d.source[0]), d.source[1]),
                d.original,
            )
            for _, d in sorted(graph.dims.items())
        ),
        locals=_locals(graph),
        buffers=tuple(assembler.buffers),
        kernels=tuple(assembler.kernels),
        body=body,
        arena=memory.arena,
        arena_max=_largest(memory, known) if len(known) == len(limits) else None,
        weights_nbytes=0,
        weights_id=bytes(32),
        weights_id_offset=0,
        offsets=memory.definitions,
        features=names.features,
        heaps=storage.heaps,
    )
    return Assembled(plan)


def _locals(graph: LoweredGraph) -> tuple[LocalSymbol, ...]:
    """Every symbol that the body sets, with what is known of it over the free dims."""
    known: dict[str, Limits] = {}
    for symbol, limit in graph.limits.items():
        later = set() if limit is None else limit.symbols() & (graph.limits.keys() - known.keys())
        if later:
            raise Internal(f"the limit of '{symbol}' is over {', '.join(sorted(later))}, which come later")
        low = graph.lows.get(symbol)
        known[symbol] = (
            None if low is None else limits_of(low, known)[0],
            None if limit is None else limits_of(limit, known)[1],
        )
    names = dict.fromkeys(_symbols_set(graph.body))
    return tuple(LocalSymbol(name, *known.get(name, (None, None))) for name in names)


def _symbols_set(body: Body) -> Iterable[str]:
    for item in body.items:
        if isinstance(item, BranchItem):
            yield from (symbol for symbol, _, _ in item.locals)
            yield from _symbols_set(item.then_body)
            yield from _symbols_set(item.else_body)
        elif isinstance(item, MeasureItem):
            yield from (row.symbol for row in item.symbols)
        elif isinstance(item, DefineItem):
            yield from (symbol for symbol, _ in item.values)
        elif isinstance(item, LoopItem):
            yield from (item.iteration, item.count, *(d.symbol for d in item.dims))
            yield from _symbols_set(item.body)


def _largest(memory: MemoryPlan, sizes: dict[str, int]) -> int:
    values = dict(sizes)
    for name, expr in memory.definitions:
        values[name] = expr.evaluate(values)
    return memory.arena.evaluate(values)


def _tensors(
    graph: LoweredGraph, values: Sequence[str], place: str, assembler: _Assembler
) -> tuple[TensorSpec, ...]:
    names = unique_identifiers(values)
    return tuple(
        TensorSpec(
            name,
            names[i],
            graph.values[name].dtype,
            graph.values[name].shape,
            assembler.port(place, i, graph.values[name]),
            tuple(graph.size_limit(d) for d in graph.values[name].shape),
        )
        for i, name in enumerate(values)
    )


@dataclass
class _Assembler:
    graph: LoweredGraph
    storage: Storage
    memory: MemoryPlan
    emit: Callable[[Nest | Routine | Group], EmittedKernel]
    weights: WeightPool
    buffers: list[BufferSpec] = field(default_factory=list)
    kernels: list[KernelSpec] = field(default_factory=list)
    made: dict[str, GraphValue] = field(default_factory=dict)
    """Constants that no graph has."""
    _buffer_ids: dict[tuple[str, IntExpr], int] = field(default_factory=dict)
    _kernel_ids: dict[str, int] = field(default_factory=dict)

    # Buffers -------------------------------------------------------------------------------------

    def port(self, place: str, number: int, value: GraphValue) -> int:
        if place == "output" and self.storage.places[value.name].kind == "heap":
            if not value.is_row_major:
                raise NotYet(f"value '{value.name}' is a result that nothing stores in row-major order")
            return self.value_buffer(value.name)
        return self._buffer(place, IntExpr.of(number), value.name, value.nbytes)

    def _buffer(self, place: str, offset: IntExpr, name: str, nbytes: IntExpr) -> int:
        key = (f"{place}:{nbytes}" if place == "arena" else place, offset)
        if key not in self._buffer_ids:
            self._buffer_ids[key] = len(self.buffers)
            self.buffers.append(BufferSpec(name, nbytes, place, offset))
        return self._buffer_ids[key]

    def value_buffer(self, name: str) -> int:
        if name in self.made:
            return self._weight(name, None)
        place = self.storage.places[name]
        if place.kind == "constant":
            return self._weight(place.block, None)
        return self._placed(place, name, self.graph.values[name].nbytes)

    def _placed(self, place: Place, name: str, nbytes: IntExpr) -> int:
        if place.kind == "arena":
            return self._buffer("arena", self.memory.offsets[place.block], name, nbytes)
        return self._buffer(place.kind, IntExpr.of(place.number), name, nbytes)

    def _weight(self, name: str, packing: Packing | None) -> int:
        value = self.made[name] if name in self.made else self.graph.values[name]
        number = self.weights.add(value, packing)
        nbytes = self.weights.blocks[number].nbytes
        return self._buffer("weight", IntExpr.of(number), name, IntExpr.of(nbytes))

    # Instructions --------------------------------------------------------------------------------

    def multiples(self) -> tuple[Instruction, ...]:
        """Guards of dims that must be multiples of a number."""
        return tuple(
            Guard(
                IntExpr.of(d.name) % d.spec.multiple_of,
                IntExpr.of(0),
                "==",
                f"dim '{d.original or d.name}' must be a multiple of {d.spec.multiple_of}",
            )
            for _, d in sorted(self.graph.dims.items())
            if d.spec.multiple_of > 1
        )

    def body(self, body: Body, key: str) -> tuple[Instruction, ...]:
        found: list[Instruction] = []
        for item in body.items:
            found += self.item(item)
        for copy in self.storage.copies.get(key, ()):
            found += self.copy(copy)
        return tuple(found)

    def item(self, item: Item) -> Iterable[Instruction]:
        yield from _guards(item.guards)
        if isinstance(item, RegionItem):
            yield from self.region(item)
        elif isinstance(item, LaunchItem):
            yield from self.launch(item)
        elif isinstance(item, BranchItem):
            yield self.branch(item)
        elif isinstance(item, MeasureItem):
            yield from self.measure(item)
        elif isinstance(item, DefineItem):
            yield from (SetSymbol(symbol, value) for symbol, value in item.values)
        elif isinstance(item, LoopItem):
            yield from self.loop(item)
        else:
            assert isinstance(item, (AliasItem, GuardItem))

    def branch(self, item: BranchItem) -> Branch:
        sides = []
        then_values = {symbol: value for symbol, value, _ in item.locals}
        else_values = {symbol: value for symbol, _, value in item.locals}
        for side, body, values in (
            ("then", item.then_body, then_values),
            ("else", item.else_body, else_values),
        ):
            settings: list[Instruction] = [SetSymbol(symbol, value) for symbol, value in values.items()]
            # A branch sizes its results by its own dims; the local ones may build on those of inner branches.
            sides.append((*self.body(body, f"{item.name}/{side}"), *settings))
        return Branch(self.value_buffer(item.condition), sides[0], sides[1], item.name)

    def copy(self, copy: CopyOut) -> Iterable[Instruction]:
        source = self.graph.values[copy.source]
        if not source.is_row_major:
            raise NotYet(f"value '{copy.source}' is a result that nothing stores in row-major order")
        if copy.result.startswith("output "):
            target = self._buffer("output", IntExpr.of(int(copy.result[7:])), copy.source, source.nbytes)
        else:
            yield from self.room(copy.result, source.nbytes)
            target = self.value_buffer(copy.result)
        yield Copy(self.value_buffer(copy.source), target, source.nbytes)

    def room(self, name: str, nbytes: IntExpr, keep: bool = False) -> Iterable[Instruction]:
        """What must happen before a place is written to: heaps grow."""
        place = self.storage.places[name]
        if place.kind == "heap":
            yield Ensure(self._placed(place, name, nbytes), nbytes, keep)

    def measure(self, item: MeasureItem) -> Iterable[Instruction]:
        source = self.graph.values[item.source]
        if not source.is_row_major:
            raise Internal(f"numbers are read from '{item.source}', which is not row-major")
        buffer = self.value_buffer(item.source)
        for row in item.symbols:
            low = row.low if row.symbol in self.graph.lows else _LOWEST
            yield ReadSymbol(row.symbol, buffer, row.element, source.dtype, low, row.high, row.message)

    # Loops ---------------------------------------------------------------------------------------

    def loop(self, item: LoopItem) -> Iterable[Instruction]:
        yield from self.set_dims(item, {d.symbol: d.initial for d in item.dims})
        yield from self.moves(f"{item.name}/first")
        for result in item.scanned:
            yield from self.room(result, ZERO)  # also where no iteration runs
        again, outputs = item.body.outputs[0], item.body.outputs[1:]
        after: list[Instruction] = []
        for result, element in zip(item.scanned, outputs[len(item.states) :], strict=True):
            after += self.scan(item, result, element)
        changed = tuple(self.set_dims(item, {d.symbol: d.next for d in item.dims}))
        # the checks before anything of this size is written
        after += [i for i in changed if isinstance(i, Guard)]
        after += self.moves(f"{item.name}/next")
        after += [i for i in changed if not isinstance(i, Guard)]
        yield Loop(
            item.trips,
            self.condition(item.condition),
            self.condition(again),
            item.iteration,
            item.count,
            self.body(item.body, f"{item.name}/body"),
            tuple(after),
            f"loop {item.name}",
        )

    def condition(self, name: str) -> int | None:
        """Of a bool; None where it is known to be true."""
        if not name:
            return None
        constant = self.graph.values[name].constant
        if constant is not None and bool(constant.reshape(-1)[0]):
            return None
        return self.value_buffer(name)

    def set_dims(self, item: LoopItem, values: dict[str, IntExpr]) -> Iterable[Instruction]:
        for symbol, value in values.items():
            limit = self.graph.limits.get(symbol)
            if limit is not None and value != limit:
                yield Guard(value, limit, "<=", f"loop '{item.name}': the size of a state")
        if values:
            yield SetSymbols(tuple(values.items()))

    def moves(self, key: str) -> Iterable[Instruction]:
        for move in self.storage.moves.get(key, ()):
            yield from self.room(move.target, move.nbytes)
            yield Copy(
                self.moved_buffer(move.source, move.nbytes),
                self.moved_buffer(move.target, move.nbytes),
                move.nbytes,
            )

    def moved_buffer(self, name: str, nbytes: IntExpr) -> int:
        """Of a value, or of a stop on its way."""
        if name in self.graph.values:
            return self.value_buffer(name)
        return self._placed(self.storage.places[name], name, nbytes)

    def scan(self, item: LoopItem, result: str, element: str) -> Iterable[Instruction]:
        nbytes = self.graph.values[element].nbytes
        iteration = IntExpr.of(item.iteration)
        limit = self.graph.limits.get(item.count)
        if limit is not None and limit != item.trips:
            yield Guard(iteration + 1, limit, "<=", f"loop '{item.name}': the number of iterations")
        yield from self.room(result, (iteration + 1) * nbytes, keep=True)
        yield Copy(self.value_buffer(element), self.value_buffer(result), nbytes, iteration * nbytes)

    # Regions -------------------------------------------------------------------------------------

    def region(self, item: RegionItem) -> Iterable[Instruction]:
        bound = dict(zip((b.name for b in item.region.inputs), item.operands))
        bound |= self.tables(item)
        bound |= dict(zip((b.name for b in item.region.outputs), item.results, strict=True))
        for name in item.results:
            yield from self.room(name, self.graph.values[name].nbytes)
        for buffer in item.region.inner:
            yield from self.room(inner_name(item.name, buffer.name), _nbytes(buffer))
        for nest in item.region.nests:
            kernel = self.emit(nest)
            buffers = tuple(self.region_buffer(item, bound, b, kernel) for b in kernel.buffers)
            comment = ", ".join(item.nodes)
            yield Call(self.kernel(kernel.spec), buffers, kernel.dims, comment)

    def launch(self, item: LaunchItem) -> Iterable[Instruction]:
        """Memory of all regions grows before any of them runs. Calls keep their order, since neighbours share
        caches, but for those of long chunks: begun last, one would leave all other threads waiting for it."""
        found = [instruction for region in item.items for instruction in self.region(region)]
        yield from (i for i in found if not isinstance(i, Call))
        calls = [i for i in found if isinstance(i, Call)]
        kernels = [self.kernels[call.kernel] for call in calls]
        chunk = [self.number(call, kernel.work) for call, kernel in zip(calls, kernels)]
        whole = sum(self.number(c, k.chunks) * work for c, k, work in zip(calls, kernels, chunk))
        first = sorted(range(len(calls)), key=lambda n: -chunk[n] if chunk[n] * _LONG > whole else 0)
        yield from [Launch(tuple(calls[n] for n in first))] if len(calls) > 1 else calls

    def number(self, call: Call, expr: IntExpr) -> int:
        """Of a kernel, for one call at the reference sizes; what data decides counts as 1."""
        value = expr.substitute({f"d{i}": dim for i, dim in enumerate(call.dims)})
        sizes = self.graph.reference_sizes()
        return value.evaluate({name: sizes.get(name, 1) for name in value.symbols()})

    def tables(self, item: RegionItem) -> dict[str, str]:
        """The last inputs of a region are numbers that its operators made: constants of no graph."""
        region, bound = item.region, {}
        for buffer, array in zip(region.inputs[len(item.operands) :], region.tables, strict=True):
            name = bound[buffer.name] = inner_name(item.name, buffer.name)
            digest = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()
            self.made[name] = GraphValue(name, buffer.dtype, buffer.shape, buffer.order, array, digest)
        return bound

    def region_buffer(
        self, item: RegionItem, bound: dict[str, str], buffer: Buffer, kernel: EmittedKernel
    ) -> int:
        if buffer.role == "inner":
            name = inner_name(item.name, buffer.name)
            nbytes = _nbytes(buffer)
            return self._placed(self.storage.places[name], name, nbytes)
        value = bound[buffer.name]
        if buffer.name in kernel.packings:
            return self._weight(value, kernel.packings[buffer.name])
        return self.value_buffer(value)

    def kernel(self, spec: KernelSpec) -> int:
        if spec.symbol not in self._kernel_ids:
            self._kernel_ids[spec.symbol] = len(self.kernels)
            self.kernels.append(spec)
        return self._kernel_ids[spec.symbol]


def _nbytes(buffer: Buffer) -> IntExpr:
    return buffer.dtype.bytes_of(product(buffer.shape))


def _guards(guards: Iterable[GraphGuard]) -> Iterable[Instruction]:
    return (Guard(g.left, g.right, g.relation, g.message) for g in guards)


def _weight_block(value: GraphValue, packing: Packing | None, number: int) -> WeightBlock:
    constant = value.constant
    assert constant is not None
    layout = "row-major"
    nbytes = value.dtype.bytes_of(IntExpr.of(constant.size)).value
    dtype = value.dtype
    if packing is not None:
        layout = f"panels of {packing.width} columns"
        dtype = DTYPES[packing.dtype] if packing.dtype else dtype
        nbytes = packing.count * dtype.nbytes

    def data() -> np.ndarray:
        if packing is not None:
            as_stored = constant.transpose(value.order) if packing.nibbles else constant
            return pack(as_stored, packing)
        flat = np.ascontiguousarray(constant.transpose(value.order)).reshape(-1)
        return pack_bits(flat) if value.dtype.is_packed else flat

    return WeightBlock(
        f"{number}:{value.name}",
        dtype.name,
        tuple(constant.shape),
        layout,
        nbytes,
        data,
    )
