"""Any nest as a loop program, by its schedule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, maximum, minimum, product
from cuvil_build.errors import NotYet
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.canonical import expressions, integers_of
from cuvil_build.kernel.cost import can_be_lanes, choose_schedule, work_per_point
from cuvil_build.kernel.emit_values import ValueWriter, accumulator_dtype
from cuvil_build.kernel.expr import Buffer, Load
from cuvil_build.kernel.flat import Condition, FlatNest, FlatStage, flat_loads, flatten
from cuvil_build.kernel.nest import Axis, Nest
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.program import (
    Assign,
    Convert,
    Horizontal,
    If,
    InRange,
    Lit,
    LoadAt,
    LocalArray,
    Op,
    Param,
    Pointer,
    Program,
    SetInt,
    StoreAt,
    Value,
    Var,
    VType,
)
from cuvil_build.kernel.ranges import (
    bounds_of,
    clip,
    clipped_conditions,
    conditions_of,
    guard_ranges,
    neutral,
    vector_ranges,
)
from cuvil_build.kernel.schedule import GroupSchedule, Schedule, narrower

_STACK_BYTES = 4096
_BEGIN, _END, _CHUNK = IntExpr.of("begin"), IntExpr.of("end"), IntExpr.of("chunk")
_UNROLLED_STEPS = 32
Bounds = tuple[IntExpr, IntExpr] | None
"""Start and stop of the vector axis in this chunk; None: all of it."""


def build_generic_program(
    nest: Nest, numbers: Numbers, schedule: Schedule | None = None, flat: FlatNest | None = None
) -> Program:
    """The program of a canonical nest (its dims are named `d0`, `d1`, …). `flat`: the same nest."""
    flat = flat or flatten(nest, analyse(nest))
    chosen = schedule or choose_schedule(flat, numbers)[0]
    _refuse_unsupported(flat)
    return _ProgramBuilder(flat, chosen, nest.buffers(), _dims(nest)).build()


def _refuse_unsupported(flat: FlatNest) -> None:
    for stage in flat.stages:
        if stage.is_reduction and stage.carried:
            raise NotYet(
                f"a {stage.kind} that reads what it sums, or sums into the same element from two loops"
            )


@dataclass(frozen=True, slots=True)
class _Accumulator:
    """The running values of one reduction."""

    stage: FlatStage
    dtype: DType
    vectors: tuple[Var, ...]
    narrow: tuple[Var, ...]
    """For the steps that fill narrower vectors."""
    scalar: Var | None
    """For the steps that fill no vector."""


class _ProgramBuilder:
    def __init__(
        self, flat: FlatNest, schedule: Schedule, buffers: Sequence[Buffer], dims: tuple[str, ...]
    ) -> None:
        self._dims = dims
        self._flat = flat
        self._schedule = schedule
        self._buffers = sorted(buffers, key=lambda b: int(b.name[1:]))
        self._temps = {s.target.name: s.target for s in flat.stages if s.target.role == "temp"}
        self._arrays = _temp_arrays(flat)
        self._writer = ValueWriter(flat.written(), self._arrays)
        self._scratch = ZERO

    def build(self) -> Program:
        writer = self._writer
        for name in sorted(self._arrays):
            self._place_temp(self._temps[name])
        self._chunks_loop()
        written = self._flat.written()
        return Program(
            params=tuple(Param(b.name, b.dtype, b.name not in written) for b in self._buffers),
            dims=self._dims,
            functions=(),
            body=tuple(writer.scopes[0].statements),
            chunks=self._chunk_count(),
            scratch=self._scratch,
            work=self._work(),
        )

    # Chunks -------------------------------------------------------------------------------------

    def _place_temp(self, buffer: Buffer) -> None:
        count = product(buffer.shape) * self._schedule.lanes
        name, dtype = buffer.name, buffer.dtype
        if count.is_static and count.value * dtype.nbytes <= _STACK_BYTES:
            self._writer.add(LocalArray(name, dtype, max(1, count.value)))
            return
        offset = self._scratch // dtype.nbytes  # a multiple of 64 bytes
        self._writer.add(Pointer(name, dtype, "scratch", offset, constant=False))
        self._scratch = self._scratch + ceil_divide(count * dtype.nbytes, 64) * 64

    def _parallel_axes(self) -> list[Axis]:
        return [self._flat.axis(name) for name in self._schedule.loops[: self._schedule.parallel]]

    def _blocks(self) -> IntExpr:
        if not self._schedule.block:
            return ONE
        assert self._schedule.vector is not None
        return ceil_divide(self._flat.axis(self._schedule.vector).extent, self._schedule.block)

    def _chunk_count(self) -> IntExpr:
        extents = [a.extent for a in self._parallel_axes()]
        if extents:
            extents[-1] = ceil_divide(extents[-1], self._schedule.chunk_rows)
        return product(extents) * self._blocks()

    def _work(self) -> IntExpr:
        total = work_per_point(self._flat, self._schedule)
        parallel = set(self._schedule.loops[: self._schedule.parallel])
        for axis in self._flat.axes:
            if axis.name in parallel:
                continue
            is_block = axis.name == self._schedule.vector and self._schedule.block
            total = total * (minimum(axis.extent, self._schedule.block) if is_block else axis.extent)
        rows = self._schedule.chunk_rows
        return total if rows == 1 else total * minimum(self._parallel_axes()[-1].extent, rows)

    def _chunks_loop(self) -> None:
        writer, parallel, block = self._writer, self._parallel_axes(), self._schedule.block
        if not parallel and block:
            assert self._schedule.vector is not None
            extent = self._flat.axis(self._schedule.vector).extent
            stop = writer.named("stop", minimum(extent, _END * block))
            self._loops(self._schedule.loops, (_BEGIN * block, stop))
            return
        if len(parallel) == 1 and not block and self._schedule.chunk_rows == 1:
            with writer.loop(parallel[0].name, _BEGIN, _END):
                self._loops(self._schedule.loops[1:], None)
            return
        with writer.loop("chunk", _BEGIN, _END):
            rest = _CHUNK
            bounds = None
            if block:
                assert self._schedule.vector is not None
                extent = self._flat.axis(self._schedule.vector).extent
                start = writer.named("start", rest % self._blocks() * block)
                bounds = start, writer.named("stop", minimum(extent, start + block))
                rest = rest // self._blocks()
            left = self._schedule.loops[self._schedule.parallel :]
            self._decode(parallel, rest, lambda: self._loops(left, bounds))

    def _decode(self, parallel: Sequence[Axis], rest: IntExpr, body: Callable[[], None]) -> None:
        """The chunk's number back to the steps of the parallel axes, last axis first."""
        writer, rows = self._writer, self._schedule.chunk_rows
        last = len(parallel) - 1
        for n, axis in reversed(list(enumerate(parallel))):
            steps = ceil_divide(axis.extent, rows) if n == last else axis.extent
            place = rest % steps if n else rest
            rest = rest // steps
            if n == last and rows > 1:
                start = writer.named("start", place * rows)
                stop = writer.named("stop", minimum(axis.extent, start + rows))
                continue
            writer.add(SetInt(axis.name, place))
            writer.name_level(axis.name)
        if rows == 1:
            body()
        elif parallel[last].name == self._schedule.row_axis:
            self._guarded_rows(parallel[last], None, start, stop)
        else:
            with writer.loop(parallel[last].name, start, stop):
                body()

    def _loops(self, names: Sequence[str], bounds: Bounds) -> None:
        """The remaining free loops, then those that carry a dependence, in their own order."""
        carried = [a.name for a in self._flat.axes if a.name in self._flat.carried]

        def descend(left: Sequence[str]) -> None:
            if len(left) == 1 and left[0] == self._schedule.row_axis:
                axis = self._flat.axis(left[0])
                self._guarded_rows(axis, bounds, ZERO, axis.extent)
                return
            if not left:
                self._guarded_points(bounds)
                return
            axis = self._flat.axis(left[0])
            with self._writer.loop(axis.name, ZERO, axis.extent):
                descend(left[1:])

        descend([*names, *carried])

    # Points -------------------------------------------------------------------------------------

    def _guarded_points(self, bounds: Bounds) -> None:
        """Where all conditions hold, code without them; elsewhere code that tests."""
        guards = guard_ranges(self._flat, self._schedule.vector or "") if self._schedule.guarded else {}
        self._guarded(
            guards, lambda: self._points(bounds, self._point), lambda: self._points(bounds, self._point)
        )

    def _guarded(
        self,
        guards: Mapping[Condition, tuple[Condition, ...]],
        inside: Callable[[], None],
        outside: Callable[[], None],
    ) -> None:
        writer = self._writer
        if not guards:
            inside()
            return
        with writer.inside(guard=True) as then:
            writer.assume(guards)
            inside()
        ranges = tuple(dict.fromkeys(part for parts in guards.values() for part in parts))
        with writer.inside(guard=True) as otherwise:
            if list(guards) == list(ranges) and len(ranges) == 1:
                writer.deny(ranges[0])
            outside()
        writer.add(If(InRange(ranges), tuple(then), tuple(otherwise)))

    def _guarded_rows(self, axis: Axis, bounds: Bounds, begin: IntExpr, end: IntExpr) -> None:
        """Conditions on the other axes first; then the axis in three parts, the inner one without tests."""
        guards = guard_ranges(self._flat, self._schedule.vector or "")
        own = {c: parts for c, parts in guards.items() if any(axis.name in p[1].symbols() for p in parts)}
        others = {c: parts for c, parts in guards.items() if c not in own}

        def single(start: IntExpr, stop: IntExpr) -> None:
            with self._writer.loop(axis.name, start, stop):
                self._points(bounds, self._point)

        def rows() -> None:
            lows, highs = bounds_of(axis.name, [p for parts in own.values() for p in parts])
            low = self._writer.named("first", minimum(end, maximum(begin, *lows)))
            high = self._writer.named("past", maximum(low, minimum(end, *highs)))
            single(begin, low)
            with self._writer.inside(guard=True) as middle:
                self._writer.assume(own)
                self._blocks_of_rows(axis, low, high, bounds)
            self._writer.scopes[-1].statements += middle
            single(high, end)

        outside = rows if self._are_clips(others, axis) else lambda: single(begin, end)
        self._guarded(others, rows, outside)

    def _are_clips(self, conditions: Iterable[Condition], axis: Axis) -> bool:
        """Whether loops over the window just begin later or end earlier where one of these fails, alike for
        all neighbours along `axis`."""
        first, *_ = self._schedule.groups
        clipped = {c for found in clipped_conditions(self._flat.stages[first.first]).values() for c in found}
        rest = self._flat.stages[first.last + 1 :]
        tested = {c for stage in rest for c in conditions_of(stage.value)}
        clips = clipped - tested
        return all(c in clips and not any(axis.name in i.symbols() for i in c) for c in conditions)

    def _blocks_of_rows(self, axis: Axis, start: IntExpr, stop: IntExpr, bounds: Bounds) -> None:
        """As many neighbouring points at once as registers allow, since they read weights once: evenly where
        their number is known, else with what is left in smaller blocks."""
        for count, blocks in self._even_blocks(stop - start):
            end = start + (stop - start) // count * count if blocks is None else start + blocks * count
            end = self._writer.named("even", end)
            with self._writer.loop(axis.name, start, end, IntExpr.of(count)):
                self._points(bounds, self._row_blocks(axis, count))
            start = end

    def _even_blocks(self, points: IntExpr) -> list[tuple[int, int | None]]:
        """Points of a block, and how many such blocks; None: as many as there is room for."""
        most = self._schedule.rows
        if not points.is_static:
            return [(count, None) for count in sorted({most, max(1, most // 2), 1}, reverse=True)]
        blocks = -(-points.value // most)
        longer = points.value % max(1, blocks)
        sizes = (
            [(points.value // blocks + 1, longer), (points.value // blocks, blocks - longer)]
            if blocks
            else []
        )
        return [(count, number) for count, number in sizes if number]

    def _row_blocks(self, axis: Axis, count: int) -> Callable[[], None]:
        return self._point if count == 1 else lambda: self._row_block(axis, count)

    def _row_block(self, axis: Axis, count: int) -> None:
        writer, group = self._writer, self._schedule.groups[0]
        stage = self._flat.stages[group.first]
        shifts = [{axis.name: IntExpr.of(axis.name) + n} for n in range(count)]
        writer.new_stage([stage.value], True)
        totals = [self._start(stage, group) for _ in shifts]

        def body() -> None:
            for total, shift in zip(totals, shifts):
                with writer.repeated(shift):
                    self._accumulate(total, writer.value(stage.value), 0)

        axes = sorted(stage.axes, key=lambda a: a.name == group.vector)
        self._nested(axes, stage, group, totals, body)
        rest = self._flat.stages[group.last + 1 :]
        if group.vector and count % group.lanes == 0 and self._can_finish_together(axis, rest):
            self._finish_together(axis, group.lanes, totals, rest)
            return
        for total, shift in zip(totals, shifts):
            with writer.repeated(shift):
                self._finish(stage, self._total(total))
                for after in rest:
                    writer.new_stage([after.value], False)
                    self._finish(after, writer.value(after.value))

    def _can_finish_together(self, axis: Axis, stages: Sequence[FlatStage]) -> bool:
        """Whether what comes after sums can be computed for neighbours of an axis in a vector's lanes."""
        return all(can_be_lanes(stage, axis.name) and not conditions_of(stage.value) for stage in stages)

    def _finish_together(
        self, axis: Axis, lanes: int, totals: Sequence[_Accumulator], stages: Sequence[FlatStage]
    ) -> None:
        """Sums of neighbouring points go through memory, to come back as vectors."""
        writer, target = self._writer, totals[0].stage.target
        memory = writer.fresh("sums")
        writer.add(LocalArray(memory, target.dtype, len(totals)))
        for place, total in enumerate(totals):
            value = self._total(total)
            if value.type.dtype != target.dtype:
                value = Convert(value, VType(target.dtype))
            writer.add(StoreAt(memory, IntExpr.of(place), value))
        for first in range(0, len(totals), lanes):
            shift = {axis.name: IntExpr.of(axis.name) + first}
            with writer.repeated(shift), writer.along(axis.name, lanes):
                loaded = LoadAt(memory, IntExpr.of(first), VType(target.dtype, lanes))
                self._finish(totals[0].stage, loaded)
                for after in stages:
                    writer.new_stage([after.value], False)
                    self._finish(after, writer.value(after.value))

    def _points(self, bounds: Bounds, point: Callable[[], None]) -> None:
        name, lanes = self._schedule.vector, self._schedule.lanes
        if name is None:
            point()
            return
        start, stop = bounds or (ZERO, self._flat.axis(name).extent)
        conditions = vector_ranges(self._flat, name)
        if not conditions:
            self._vector_loop(name, start, stop, lanes, point, interleaved=True)
            return
        writer = self._writer
        parts = [part for found in conditions.values() for part in found]
        lows, highs = bounds_of(name, [p for p in parts if name in p[1].symbols()])
        low = writer.named("low", minimum(stop, maximum(start, *lows)))
        high = writer.named("high", minimum(stop, maximum(low, minimum(*highs))))
        self._vector_loop(name, start, low, 1, point)
        with writer.inside(guard=True) as middle:
            writer.assume(c for c, found in conditions.items() if all(name in p[1].symbols() for p in found))
            self._vector_loop(name, low, high, lanes, point, interleaved=True)
        writer.scopes[-1].statements += middle
        self._vector_loop(name, high, stop, 1, point)

    def _vector_loop(
        self,
        name: str,
        start: IntExpr,
        stop: IntExpr,
        lanes: int,
        body: Callable[[], None],
        interleaved: bool = False,
    ) -> None:
        """Whole vectors, then single steps. `stop` must not be below `start`."""
        writer = self._writer
        main = start + (stop - start) // lanes * lanes
        if lanes > 1 and main != start:
            main = writer.named("main", main)
            with writer.loop(name, start, main, IntExpr.of(lanes)), writer.along(name, lanes, interleaved):
                body()
        start = main if lanes > 1 else start
        for width in self._tail_widths(stop - start, lanes):
            main = writer.named("tail", start + (stop - start) // width * width)
            with writer.loop(name, start, main, IntExpr.of(width)), writer.along(name, width, interleaved):
                body()
            start = main
        if start != stop:
            with writer.loop(name, start, stop), writer.along(name, 1):
                body()

    def _tail_widths(self, rest: IntExpr, lanes: int) -> tuple[int, ...]:
        """Narrower vectors for what fills no whole one: those that it is known to fill, or where single steps
        would be dear."""
        half = (lanes // 2,) if lanes > 3 and self._schedule.halves else ()
        widths = narrower(lanes) or half
        if not rest.is_static:
            return widths if self._schedule.halves else ()
        found, left = [], rest.value % lanes
        for width in widths:
            if left >= width:
                found.append(width)
            left %= width
        return tuple(found)

    def _point(self) -> None:
        first = True
        for group in self._schedule.groups:
            stages = self._flat.stages[group.first : group.last + 1]
            self._writer.new_stage((s.value for s in stages), first)
            first = False
            if not stages[0].axes:
                for stage in stages:
                    self._finish(stage, self._writer.value(stage.value))
            elif stages[0].is_reduction and stages[0].reduced != {a.name for a in stages[0].axes}:
                self._partial_reduction(stages[0], group)
            else:
                self._whole_loops(stages, group)

    def _finish(self, stage: FlatStage, value: Value) -> None:
        """A stage's value to its target."""
        writer, target = self._writer, stage.target
        if value.type.dtype != target.dtype:
            value = Convert(value, VType(target.dtype, value.type.lanes))
        if target.role == "temp" and target.name not in self._arrays:
            if not isinstance(value, (Var, Lit)):
                value = writer.declare(f"{target.name}_", value)
            writer.temps[target.name] = value, writer.depth
            return
        writer.store(target.name, target.role == "temp", target.dtype, stage.offset, value)

    # Loops of stages ----------------------------------------------------------------------------

    def _whole_loops(self, stages: Sequence[FlatStage], group: GroupSchedule) -> None:
        """Stores, and reductions over all axes, in the same loops."""
        sums = [self._start(s, group) for s in stages if s.is_reduction]
        axes = list(stages[0].axes)
        if group.vector:
            axes.sort(key=lambda a: a.name == group.vector)

        def body() -> None:
            running = iter(sums)
            for stage in stages:
                value = self._writer.value(stage.value)
                if stage.is_reduction:
                    self._accumulate(next(running), value, 0)
                else:
                    self._finish(stage, value)

        only = stages[0] if len(stages) == 1 else None
        self._nested(axes, only, group, sums, body)
        for total in sums:
            self._finish(total.stage, self._total(total))

    def _partial_reduction(self, stage: FlatStage, group: GroupSchedule) -> None:
        """A reduction that keeps some axes: one whole reduction for each of their steps."""
        kept = [a for a in stage.axes if a.name not in stage.reduced]
        reduced = [a for a in stage.axes if a.name in stage.reduced]
        vector_is_kept = group.vector in {a.name for a in kept}
        kept.sort(key=lambda a: a.name == group.vector)
        reduced.sort(key=lambda a: a.name == group.vector)
        inner = GroupSchedule(group.first, group.last) if vector_is_kept else group

        def reduce() -> None:
            self._side_by_side(stage, reduced, inner, [{}])

        def descend(left: Sequence[Axis]) -> None:
            if not left:
                reduce()
            elif left[0].name == group.vector:
                start = self._blocks_of_vectors(left[0], stage, reduced, group)
                self._vector_loop(left[0].name, start, left[0].extent, group.lanes, reduce)
            else:
                with self._writer.loop(left[0].name, ZERO, left[0].extent):
                    descend(left[1:])

        descend(kept)

    def _blocks_of_vectors(
        self, axis: Axis, stage: FlatStage, reduced: Sequence[Axis], group: GroupSchedule
    ) -> IntExpr:
        """Several vectors of a kept axis at once, which is the last of them; gives where these stop."""
        stride = group.lanes * group.abreast
        if group.abreast == 1:
            return ZERO
        writer = self._writer
        stop = writer.named("wide", axis.extent // stride * stride)
        shifts = [{axis.name: IntExpr.of(axis.name) + n * group.lanes} for n in range(group.abreast)]
        inner = GroupSchedule(group.first, group.last)
        with (
            writer.loop(axis.name, ZERO, stop, IntExpr.of(stride)),
            writer.along(axis.name, group.lanes),
        ):
            self._side_by_side(stage, reduced, inner, shifts)
        return stop

    def _side_by_side(
        self,
        stage: FlatStage,
        reduced: Sequence[Axis],
        group: GroupSchedule,
        shifts: Sequence[dict[str, IntExpr]],
    ) -> None:
        """A reduction at several places: one loop, a sum for each."""
        writer = self._writer
        totals = [self._start(stage, group) for _ in shifts]

        def body() -> None:
            for total, shift in zip(totals, shifts):
                with writer.repeated(shift):
                    self._accumulate(total, writer.value(stage.value), 0)

        self._nested(reduced, stage, group, totals, body)
        for total, shift in zip(totals, shifts):
            with writer.repeated(shift):
                self._finish(stage, self._total(total))

    def _nested(
        self,
        axes: Sequence[Axis],
        stage: FlatStage | None,
        group: GroupSchedule,
        sums: Sequence[_Accumulator],
        body: Callable[[], None],
    ) -> None:
        """Loops over `axes`; the vector axis of the group, if any, is the last."""
        writer = self._writer
        clips = clipped_conditions(stage) if stage else {}
        small = (
            all(a.extent.is_static for a in axes) and product(a.extent for a in axes).value <= _UNROLLED_STEPS
        )

        def descend(left: Sequence[Axis]) -> None:
            if not left:
                body()
                return
            axis = left[0]
            start, stop = ZERO, axis.extent
            mine = [c for c in clips.get(axis.name, []) if c not in writer.assumed]
            if mine:
                start, stop = clip(axis, mine)
                start = writer.named("from", start)
                stop = writer.named("to", maximum(start, stop))
            if axis.name == group.vector:
                self._stage_vector_loop(axis, start, stop, group, sums, mine, body)
                return
            unroll = axis.extent.value if small and not mine and axis.extent.value > 1 else 0
            with writer.loop(axis.name, start, stop, unroll=unroll):
                writer.assume(mine)
                descend(left[1:])

        descend(axes)

    def _stage_vector_loop(
        self,
        axis: Axis,
        start: IntExpr,
        stop: IntExpr,
        group: GroupSchedule,
        sums: Sequence[_Accumulator],
        clipped: Sequence[tuple[IntExpr, IntExpr, IntExpr]],
        body: Callable[[], None],
    ) -> None:
        writer, lanes, count = self._writer, group.lanes, group.accumulators
        if count > 1:
            stride = lanes * count
            wide = writer.named("wide", start + (stop - start) // stride * stride)
            with writer.loop(axis.name, start, wide, IntExpr.of(stride)), writer.along(axis.name, lanes):
                writer.assume(clipped)
                for n in range(count):
                    with writer.repeated({axis.name: IntExpr.of(axis.name) + n * lanes}):
                        for total in sums:
                            self._accumulate(total, writer.value(total.stage.value), n)
            start = wide

        def step() -> None:
            writer.assume(clipped)
            body()

        self._vector_loop(axis.name, start, stop, lanes, step)

    # Reductions ---------------------------------------------------------------------------------

    def _start(self, stage: FlatStage, group: GroupSchedule) -> _Accumulator:
        writer = self._writer
        steps = product(a.extent for a in stage.axes if a.name in stage.reduced)
        lanes = writer.lanes if group.vector is None else group.lanes
        dtype = accumulator_dtype(stage.kind, stage.target.dtype, lanes, steps)
        start = neutral(stage.kind, dtype.kind, dtype.bits)

        def declared(prefix: str, width: int) -> Var:
            kind = VType(dtype, width)
            return writer.declare(prefix, Lit(start, kind), constant=False)

        vectors = tuple(declared("sum", lanes) for _ in range(group.accumulators))
        scalar = declared("rest", 1) if group.vector else None
        narrow: tuple[Var, ...] = ()
        if group.vector:
            extent = next(a.extent for a in stage.axes if a.name == group.vector)
            free = IntExpr.of(group.vector)
            widths = self._tail_widths(free if self._schedule.halves else extent, lanes)
            narrow = tuple(declared("narrow", width) for width in widths)
        return _Accumulator(stage, dtype, vectors, narrow, scalar)

    def _accumulate(self, total: _Accumulator, value: Value, number: int) -> None:
        writer = self._writer
        into = total.vectors[number]
        if total.scalar is not None and writer.lanes == 1:
            into = total.scalar
        else:
            into = next((v for v in total.narrow if v.type.lanes == writer.lanes), into)
        if value.type.dtype != total.dtype:
            value = Convert(value, VType(total.dtype, value.type.lanes))
        value = writer.widened(value)
        writer.add(Assign(into.name, into.type, _combined(total.stage.kind, into, value)))

    def _total(self, total: _Accumulator) -> Value:
        kind = total.stage.kind
        level: list[Value] = list(total.vectors)
        while len(level) > 1:
            half = len(level) // 2
            level = [_combined(kind, level[n], level[n + half]) for n in range(half)]
        value = level[0]
        if total.scalar is None:
            return value
        across: Value = Horizontal(kind, value, VType(total.dtype))
        for part in total.narrow:
            across = _combined(kind, across, Horizontal(kind, part, VType(total.dtype)))
        return _combined(kind, across, total.scalar)


def _combined(kind: str, left: Value, right: Value) -> Value:
    function = {"sum": "add", "prod": "mul"}.get(kind, kind)
    return Op(function, (left, right), left.type)


def _temp_arrays(flat: FlatNest) -> dict[str, int]:
    """Temps with axes of their own, or written inside of loops: they need memory."""
    found = {s.target.name for s in flat.stages if s.target.role == "temp" and s.target.shape}
    for stage in flat.stages:
        for load in flat_loads(stage.value):
            if load.buffer.role == "temp" and load.buffer.shape:
                found.add(load.buffer.name)
        inside = stage.kind == "store" and stage.axes
        if stage.target.role == "temp" and inside:
            found.add(stage.target.name)
    return dict.fromkeys(sorted(found), 0)


def _dims(nest: Nest) -> tuple[str, ...]:
    """All run-time dims up to the highest that the nest mentions: they are passed by position."""
    sizes = [a.extent for a in nest.axes] + [a.extent for s in nest.stages for a in s.axes]
    sizes += [i for s in nest.stages for i in (*s.index, *s.target.shape)]
    for part in expressions(s.value for s in nest.stages):
        sizes += integers_of(part)
        if isinstance(part, Load):
            sizes += part.buffer.shape
    numbers = {int(name[1:]) for size in sizes for name in size.symbols() if re.fullmatch(r"d\d+", name)}
    return tuple(f"d{n}" for n in range(max(numbers, default=-1) + 1))
