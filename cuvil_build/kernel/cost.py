"""Chooses a schedule by what loads, stores and operations cost along each axis that could be a vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.kernel.expr import Const, IndexValue
from cuvil_build.kernel.flat import FlatApply, FlatExpr, FlatLoad, FlatNest, FlatStage, FlatWithin, flat_parts
from cuvil_build.kernel.nest import Axis
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.ranges import assumable, clipped_conditions, conditions_of, guard_ranges
from cuvil_build.kernel.schedule import GroupSchedule, Schedule, narrower

_TYPICAL = 64
"""Assumed for a free extent."""
_WINDOW_STEPS = 32
_CHUNK_WORK = 16_000.0
"""Scalar operations up to which a chunk is not worth cutting further."""
_COSTS = {
    **dict.fromkeys(["div", "reciprocal", "sqrt"], 4),
    **dict.fromkeys(["exp", "log", "sigmoid", "atan"], 14),
    **dict.fromkeys(["tanh", "asin", "acos", "erf"], 22),
    **dict.fromkeys(["sin", "cos", "mod", "fmod"], 35),
    **dict.fromkeys(["pow", "tan"], 50),
}
_CHAINS = frozenset("exp log sigmoid tanh erf".split())
"""Functions whose polynomials leave registers for a second vector: 1.1 to 1.5 times as fast with one, with 16
registers of 4 or 8 floats. Sine and cosine are not."""
_FEW_PARTS = 24
"""Of an expression whose values all have room in twice as many registers."""
_STRIDED = 1.4
"""A lane of a strided load or store, where a contiguous vector costs 1."""
_DEAR = 10.0
"""An operation that should not run one lane at a time."""
_POINT = 4.0
"""Loop control per point."""
_HORIZONTAL = 8.0


@dataclass(frozen=True, slots=True)
class _Along:
    """The cost of one step of a loop over vectors, and of one over scalars."""

    vector: float
    scalar: float

    def per_element(self, extent: int, lanes: int) -> float:
        vectors, rest = divmod(extent, lanes)
        for width in narrower(lanes):
            more, rest = divmod(rest, width)
            vectors += more
        return (vectors * self.vector + rest * self.scalar) / max(1, extent)


def choose_schedule(flat: FlatNest, numbers: Numbers) -> tuple[Schedule, float]:
    """The schedule and its estimated cost per point of the nest."""
    by_stage = _groups_by_stage(flat, numbers)
    cost, vector, lanes = min(_vectors(flat, by_stage, numbers), key=lambda row: row[0])
    return _schedule_along(flat, by_stage, vector, lanes, cost, _rows(numbers)), cost


def schedules_along(flat: FlatNest, numbers: Numbers) -> tuple[Schedule, ...]:
    """One for each axis that may be the vector and one without; first what is estimated to be fastest."""
    by_stage = _groups_by_stage(flat, numbers)
    rows = sorted(_vectors(flat, by_stage, numbers), key=lambda row: row[0])
    return tuple(
        _schedule_along(flat, by_stage, vector, lanes, cost, _rows(numbers)) for cost, vector, lanes in rows
    )


def estimated_cost(flat: FlatNest, schedule: Schedule) -> float:
    """Of a given schedule, per point of the nest, in scalar operations."""
    if schedule.vector is None:
        return _POINT + sum(_group_cost(flat, g) for g in schedule.groups)
    axis = flat.axis(schedule.vector)
    cost = sum(_stage_cost(s, axis, schedule.lanes) * _steps(s.axes) for s in flat.stages)
    return cost + _POINT / schedule.lanes


def function_cost(function: str) -> int:
    """Scalar operations that it takes as long as."""
    return _COSTS.get(function, 1)


def _groups_by_stage(flat: FlatNest, numbers: Numbers) -> tuple[GroupSchedule, ...]:
    return tuple(_group_schedule(flat, g, numbers) for g in _groups(flat.stages))


def _vectors(
    flat: FlatNest, by_stage: Sequence[GroupSchedule], numbers: Numbers
) -> list[tuple[float, Axis | None, int]]:
    """Axes along which whole points may be vectors, with their lanes and the cost per point."""
    found: list[tuple[float, Axis | None, int]] = [
        (_POINT + sum(_group_cost(flat, g) for g in by_stage), None, 1)
    ]
    for axis in (a for a in flat.axes if a.name not in flat.carried):
        lanes = _lanes(flat.stages, axis, numbers)
        if lanes > 1 and all(_can_be_outer_vector(flat, s, axis) for s in flat.stages):
            cost = sum(_stage_cost(s, axis, lanes) * _steps(s.axes) for s in flat.stages)
            found.append((cost + _POINT / lanes, axis, lanes * _registers(flat, axis, lanes, numbers)))
    return found


def _registers(flat: FlatNest, axis: Axis, lanes: int, numbers: Numbers) -> int:
    """Of one value: two where every point is a polynomial or more, whose steps wait for each other. With few
    registers, or functions that need many themselves, they would spill."""
    parts = flat_parts(s.value for s in flat.stages)
    functions = {p.function for p in parts if isinstance(p, FlatApply)}
    dear = {f for f in functions if _COSTS.get(f, 1) >= _DEAR}
    if not dear or dear - _CHAINS or numbers.vector_registers < 16 or lanes != numbers.lanes(4):
        return 1
    if len(parts) > _FEW_PARTS:
        return 1
    if any(s.axes or s.is_reduction for s in flat.stages):
        return 1
    offsets = [p.offset for p in parts if isinstance(p, FlatLoad)] + [s.offset for s in flat.stages]
    if any(isinstance(p, FlatWithin) for p in parts):
        return 1
    if any(offset.coefficient(axis.name) not in (ZERO, ONE) for offset in offsets):
        return 1
    return 2 if not axis.extent.is_static or axis.extent.value >= 2 * lanes else 1


def _schedule_along(
    flat: FlatNest, by_stage: Sequence[GroupSchedule], vector: Axis | None, lanes: int, cost: float, rows: int
) -> Schedule:
    groups = tuple(GroupSchedule(g.first, g.last) if vector else g for g in by_stage)
    free = [a for a in flat.axes if a.name not in flat.carried]
    loops = sorted((a for a in free if a is not vector), key=lambda a: -_reach(flat, a))
    row_axis = _row_axis(flat, loops, vector, groups)
    left = len(loops) - (1 if row_axis and vector else 0)
    parallel, block, chunk_rows = _chunking(
        loops, left, vector, lanes, cost, _steps(a for a in flat.axes if a.name in flat.carried)
    )
    if row_axis and vector is None:
        # rows hide the latency of additions, their sums fill vectors, and a chunk has whole blocks of them
        groups = (replace(groups[0], accumulators=1), *groups[1:])
        rows = max(1, rows // groups[0].lanes) * groups[0].lanes
        if parallel == len(loops):
            wanted = int(_CHUNK_WORK / 2 / max(1.0, cost))
            chunk_rows = max(1, -(-wanted // rows)) * rows
    return Schedule(
        loops=tuple(a.name for a in loops),
        parallel=parallel,
        vector=vector.name if vector else None,
        lanes=lanes,
        block=block,
        groups=groups,
        guarded=_is_worth_guarding(flat, vector),
        row_axis=row_axis,
        rows=rows if row_axis else 1,
        chunk_rows=chunk_rows,
        halves=any(_operation(part) >= _DEAR for part in flat_parts(s.value for s in flat.stages)),
    )


def _rows(numbers: Numbers) -> int:
    """Neighbouring points at once, a sum each: enough to hide an addition, with room for what they read."""
    return max(1, min(numbers.fma_latency * numbers.fma_ports, numbers.vector_registers // 2 - 1))


def typical(extent: IntExpr) -> int:
    return extent.value if extent.is_static else _TYPICAL


def work_per_point(flat: FlatNest, schedule: Schedule) -> IntExpr:
    """Scalar operations, over the dims."""
    total = ONE
    for stage in flat.stages:
        steps = ONE
        for axis in stage.axes:
            steps = steps * axis.extent
        total = total + steps * max(1, round(sum(_operation(p) for p in flat_parts([stage.value]))))
    return total


def _steps(axes: Iterable[Axis]) -> int:
    total = 1
    for axis in axes:
        total *= typical(axis.extent)
    return total


def _groups(stages: Sequence[FlatStage]) -> list[GroupSchedule]:
    """Neighbours with the same axes join where no value crosses between different steps."""
    groups: list[list[int]] = []
    for n, stage in enumerate(stages):
        if groups and all(_can_join(stages[m], stage) for m in groups[-1]):
            groups[-1].append(n)
        else:
            groups.append([n])
    return [GroupSchedule(g[0], g[-1]) for g in groups]


def _can_join(first: FlatStage, second: FlatStage) -> bool:
    if not first.axes or first.axes != second.axes or first.carried or second.carried:
        return False
    names = {a.name for a in first.axes}
    if any(s.is_reduction and s.reduced != names for s in (first, second)):
        return False
    if any(clipped_conditions(s) for s in (first, second)):
        return False
    touched = [(p.buffer.name, p) for p in flat_parts([second.value]) if isinstance(p, FlatLoad)]
    reads = [(p.buffer.name, p) for p in flat_parts([first.value]) if isinstance(p, FlatLoad)]
    for name, load in touched:
        if name == first.target.name and (first.is_reduction or load.offset != first.offset or load.gathers):
            return False
    for name, load in reads:
        if name == second.target.name and (load.offset != second.offset or load.gathers):
            return False
    return first.target.name != second.target.name


def _lanes(stages: Sequence[FlatStage], axis: Axis, numbers: Numbers) -> int:
    """Of the widest float, or the widest type where there are none; no more than the axis has steps."""
    dtypes = [
        p.dtype for s in stages for p in flat_parts([s.value]) if not isinstance(p, (Const, IndexValue))
    ]
    dtypes += [s.target.dtype for s in stages]
    floats = [d.nbytes for d in dtypes if d.is_float]
    lanes = numbers.lanes(max(floats or [d.nbytes for d in dtypes]))
    while axis.extent.is_static and lanes > axis.extent.value:
        lanes //= 2
    return max(1, lanes)


def _is_vectorisable(value: FlatExpr, axis: str) -> bool:
    for part in flat_parts([value]):
        if isinstance(part, FlatLoad):
            if part.offset.coefficient(axis) is None:
                return False
            if any(axis in _symbols(index) for _, _, index in part.gathers):
                return False
        if isinstance(part, IndexValue):
            factor = part.index.coefficient(axis)
            if factor is None or not factor.is_static:
                return False
    return True


def _symbols(value: FlatExpr) -> frozenset[str]:
    found: set[str] = set()
    for part in flat_parts([value]):
        if isinstance(part, IndexValue):
            found |= part.index.symbols()
        if isinstance(part, FlatLoad):
            found |= part.offset.symbols()
        if isinstance(part, FlatWithin):
            found |= {s for c in part.conditions for i in c for s in i.symbols()}
    return frozenset(found)


def _can_be_outer_vector(flat: FlatNest, stage: FlatStage, axis: Axis) -> bool:
    if not _is_vectorisable(stage.value, axis.name) or (
        stage.target.dtype.kind == "bool" and stage.is_reduction
    ):
        return False
    if stage.target.role != "temp":
        factor = stage.offset.coefficient(axis.name)
        if factor is None or factor == ZERO:
            return False
    if any(axis.name in a.extent.symbols() for a in stage.axes):
        return False
    for part in flat_parts([stage.value]):
        if isinstance(part, FlatWithin):
            for condition in part.conditions:
                mentions = any(axis.name in i.symbols() for i in condition)
                if mentions and not assumable(condition, stage.axes, axis.name):
                    return False
    return True


def can_be_lanes(stage: FlatStage, axis: str) -> bool:
    """Whether a plain store of one dtype can be computed for neighbours of an axis in a vector's lanes."""
    factor = stage.offset.coefficient(axis)
    loads = [part for part in flat_parts([stage.value]) if isinstance(part, FlatLoad)]
    if stage.axes or stage.is_reduction or factor is None or factor == ZERO:
        return False
    return _is_vectorisable(stage.value, axis) and all(p.dtype == stage.target.dtype for p in loads)


def _can_be_stage_vector(stage: FlatStage, axis: Axis) -> bool:
    if axis.name in stage.carried or not _is_vectorisable(stage.value, axis.name):
        return False
    if stage.is_reduction and stage.target.dtype.kind == "bool":
        return False
    if not stage.is_reduction or axis.name not in stage.reduced:
        factor = stage.offset.coefficient(axis.name)
        if factor is None or factor == ZERO:
            return False
    clipped = {c for conditions in clipped_conditions(stage).values() for c in conditions}
    for part in flat_parts([stage.value]):
        if isinstance(part, FlatWithin):
            for condition in part.conditions:
                if condition not in clipped and any(axis.name in i.symbols() for i in condition):
                    return False
    return True


def _group_schedule(flat: FlatNest, group: GroupSchedule, numbers: Numbers) -> GroupSchedule:
    stages = flat.stages[group.first : group.last + 1]
    best, best_cost = group, _group_cost(flat, group)
    for axis in stages[0].axes:
        lanes = _lanes(stages, axis, numbers)
        if lanes == 1 or not all(_can_be_stage_vector(s, axis) for s in stages):
            continue
        sums = all(s.is_reduction and axis.name in s.reduced for s in stages)
        accumulators = 4 if sums and typical(axis.extent) >= 8 * lanes else 1
        abreast = _abreast(stages, axis, lanes, numbers)
        candidate = GroupSchedule(group.first, group.last, axis.name, lanes, accumulators, abreast)
        cost = _group_cost(flat, candidate)
        if cost < best_cost:
            best, best_cost = candidate, cost
    return best


def _abreast(stages: Sequence[FlatStage], axis: Axis, lanes: int, numbers: Numbers) -> int:
    """As many sums of neighbouring vectors as hide the latency of one; each reads what they share once."""
    kept = len(stages) == 1 and stages[0].is_reduction and axis.name not in stages[0].reduced
    if not kept or any(_operation(part) >= _DEAR for part in flat_parts([stages[0].value])):
        return 1
    count = min(numbers.fma_latency * numbers.fma_ports, numbers.vector_registers // 2)
    return max(1, min(count, typical(axis.extent) // lanes))


def _group_cost(flat: FlatNest, group: GroupSchedule) -> float:
    total = 0.0
    for stage in flat.stages[group.first : group.last + 1]:
        axis = next((a for a in stage.axes if a.name == group.vector), None)
        total += _stage_cost(stage, axis, group.lanes) * _steps(stage.axes)
        if axis and axis.name in stage.reduced:
            total += _HORIZONTAL * _steps(a for a in stage.axes if a.name not in stage.reduced)
    return total


def _stage_cost(stage: FlatStage, axis: Axis | None, lanes: int) -> float:
    """Per step, in scalar operations."""
    parts = flat_parts([stage.value])
    scalar = sum(_operation(p) for p in parts) + 1.0
    if axis is None:
        # one accumulator: each addition waits for the one before
        return scalar + (3.0 if stage.is_reduction else 0.0)
    vector = 0.0
    for part in parts:
        if isinstance(part, FlatLoad):
            vector += _access(part.offset, axis, lanes, part.buffer.role == "temp")
        else:
            vector += _operation(part)
    if not stage.is_reduction:
        vector += _access(stage.offset, axis, lanes, stage.target.role == "temp")
    else:
        vector += 1.0
    return _Along(vector, scalar).per_element(typical(axis.extent), lanes)


def _access(offset: IntExpr, axis: Axis, lanes: int, is_temp: bool) -> float:
    factor = offset.coefficient(axis.name)
    if factor == ZERO:
        return 1.0 if is_temp else 0.4
    return 1.0 if factor == ONE else _STRIDED * lanes


def _operation(part: FlatExpr) -> float:
    if isinstance(part, FlatApply):
        return float(_COSTS.get(part.function, 1))
    if isinstance(part, FlatWithin):
        return 1.0
    return 0.0 if isinstance(part, (Const, IndexValue)) else 1.0


def _reach(flat: FlatNest, axis: Axis) -> int:
    """How far apart in memory neighbouring steps write: far ones make the outer loops."""
    stores = [s for s in flat.stages if s.target.role != "temp"]
    factor = stores[-1].offset.coefficient(axis.name) if stores else None
    if factor is None:
        return 0
    return factor.evaluate(dict.fromkeys(factor.symbols(), _TYPICAL))


def _chunking(
    loops: Sequence[Axis], limit: int, vector: Axis | None, lanes: int, cost: float, carried: int
) -> tuple[int, int, int]:
    """How many leading loops become chunks, the vector axis' steps in one, and the last such loop's."""
    inner = cost * carried * (typical(vector.extent) if vector else 1)
    work = inner
    for axis in loops:
        work *= typical(axis.extent)
    parallel = 0
    while parallel < limit and work > _CHUNK_WORK:
        work /= max(1, typical(loops[parallel].extent))
        parallel += 1
    rows = max(1, int(_CHUNK_WORK / 2 / max(1.0, work))) if parallel > 1 else 1
    if vector is None or (parallel < len(loops)) or inner <= 2 * _CHUNK_WORK:
        is_only_loop = vector is not None and not loops and not vector.extent.is_static
        if not is_only_loop:
            return parallel, 0, rows
    wanted = int(_CHUNK_WORK / max(1e-3, cost * carried))
    # a multiple of several vectors: only the last chunk has a tail
    return parallel, max(1, wanted // (4 * lanes)) * 4 * lanes, 1


def _row_axis(
    flat: FlatNest, loops: Sequence[Axis], vector: Axis | None, groups: Sequence[GroupSchedule]
) -> str:
    """The innermost loop of a window that several outputs can share the weights of."""
    if not loops or flat.carried or (vector is None and groups[0].vector is None):
        return ""
    name = vector.name if vector else ""
    tested = bool(guard_ranges(flat, name))
    if tested and not _is_worth_guarding(flat, vector):
        return ""
    first, *rest = (flat.stages[g.first : g.last + 1] for g in groups)
    window = first[0]
    if len(first) > 1 or not window.is_reduction or window.reduced != {a.name for a in window.axes}:
        return ""
    if any(s.axes or s.is_reduction for stages in rest for s in stages):
        return ""
    dear = any(_operation(part) >= _DEAR for part in flat_parts(s.value for stages in rest for s in stages))
    if not (_has_few_steps(window) if vector else _is_plain_sum(flat, window, loops[-1], dear)):
        return ""
    return loops[-1].name if not tested or _splits(flat, loops[-1].name, name) else ""


def _has_few_steps(stage: FlatStage) -> bool:
    return all(a.extent.is_static for a in stage.axes) and _steps(stage.axes) <= _WINDOW_STEPS


def _is_plain_sum(flat: FlatNest, stage: FlatStage, axis: Axis, dear: bool) -> bool:
    """Whether a simple sum gains from neighbours at once, which read the same memory or whose results are
    dear to compute with, and all that is tested can be tested before."""
    parts = flat_parts([stage.value])
    if any(_operation(part) >= _DEAR for part in parts):
        return False
    if any(c not in guard_ranges(flat, "") for c in conditions_of(stage.value)):
        return False
    loads = [part for part in parts if isinstance(part, FlatLoad)]
    shared = [part for part in loads if axis.name not in _symbols(part)]
    return (dear or 0 < len(shared) < len(loads)) and not any(part.gathers for part in loads)


def _splits(flat: FlatNest, axis: str, vector: str) -> bool:
    """Whether the conditions on an axis leave one inner range of it."""
    found = False
    for parts in guard_ranges(flat, vector).values():
        for low, index, high in parts:
            if axis not in (symbols := index.symbols() | low.symbols() | high.symbols()):
                continue
            factor = index.coefficient(axis)
            plain = factor is not None and factor.is_static and factor.value > 0
            if not plain or axis in low.symbols() | high.symbols():
                return False
            found = found or axis in symbols
    return found


def _is_worth_guarding(flat: FlatNest, vector: Axis | None) -> bool:
    parts = flat_parts(s.value for s in flat.stages)
    name = vector.name if vector else ""
    return len(parts) <= 80 and bool(guard_ranges(flat, name))
