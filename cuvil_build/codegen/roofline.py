"""What a kernel has to do at given sizes, and how fast a target could do it at best.

Operations are scalar ones; a function counts as what its polynomial takes. Bytes are those of each operand
once, however often a kernel reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from cuvil_build.codegen.kernels import EmittedKernel, KernelPart
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.cost import function_cost
from cuvil_build.kernel.expr import Apply, Buffer
from cuvil_build.kernel.nest import Axis, Nest, Stage, loads, parts
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.tile_cost import predict
from cuvil_build.kernel.tile_product import Product
from cuvil_build.kernel.tile_schedule import TileSchedule
from cuvil_build.kernel.winograd_linear import operations
from cuvil_build.kernel.winograd_transform import Transform
from cuvil_build.target.descriptor import Target

Sizes = Mapping[str, int]
PEAK, OPERATIONS = "multiply-adds", "operations"


@dataclass(frozen=True, slots=True)
class Work:
    """Of one run of a kernel."""

    flops: int
    """A multiply-add counts as two."""
    slots: int
    """Scalar operations, a multiply-add being one."""
    fused: int
    """Multiply-adds among them."""
    products: int
    """Those of them that register tiles do."""
    weight_bytes: int
    activation_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Where the operands of a module come from, by how much there is of them."""

    weights: int
    """Bytes of all weights of the module."""
    arena: int


@dataclass(frozen=True, slots=True)
class Limit:
    """The roofline of a kernel."""

    cycles: float
    bound: str
    """What it is that limits it: `multiply-adds`, `operations`, or the level that bytes come from."""


def work_of(kernel: EmittedKernel, sizes: Sizes) -> Work:
    """`sizes` are of the symbols of the nest that the kernel was emitted for."""
    dims = {f"d{n}": _value(dim, sizes) for n, dim in enumerate(kernel.dims)}
    slots = fused = products = 0
    for part in kernel.parts:
        runs, own = runs_of(kernel, part, dims)
        adds = runs * _multiply_adds(part, own)
        fused += adds
        products += adds if part.product is not None else 0
        slots += runs * _slots(part, own)
    most = _touched(kernel, dims) if not kernel.axes else {}
    read = [(b.constant, min(_nbytes(b, sizes), most.get(n, 1 << 62))) for n, b in enumerate(kernel.buffers)]
    weights = sum(n for constant, n in read if constant)
    activations = sum(n for constant, n in read if not constant)
    return Work(slots + fused, slots, fused, products, weights, activations)


def runs_of(kernel: EmittedKernel, part: KernelPart, dims: Sizes) -> tuple[int, dict[str, int]]:
    """How often a part runs in one run of its kernel, and its own dims: of a walk, those half way."""
    points = prod(_value(a.extent, dims) for a in kernel.axes)
    at = {**dims, **{a.name: 0 for a in kernel.axes}}
    steps = 1
    if kernel.walk is not None:
        steps = _value(kernel.walk.extent, at)
        at[kernel.walk.name] = steps // 2
    runs = steps
    if part.repeat is not None:
        name = "" if kernel.walk is None else kernel.walk.name
        runs = sum(_value(part.repeat.extent, {**at, name: step}) for step in range(steps))
        at[part.repeat.name] = 0
    return points * runs, {f"d{n}": _value(dim, at) for n, dim in enumerate(part.dims)}


def limit_of(work: Work, lanes: int, target: Target, memory: Memory) -> Limit:
    """The longest of what the kernel must compute and of what it must read and write."""
    rate = lanes * target.fma.ports
    computing = PEAK if work.fused * 2 > work.slots else OPERATIONS
    rows = [(work.slots / rate, computing)]
    level, weights = _level(memory.weights, target)
    rows.append((work.weight_bytes / weights, f"weights from {level}"))
    level, activations = _level(memory.arena, target)
    both = work.weight_bytes / weights + work.activation_bytes / activations
    rows.append((both, f"activations from {level}"))
    cycles, bound = max(rows, key=lambda row: row[0])
    if bound == rows[2][1] and rows[1][0] * 2 > both:
        bound = rows[1][1]
    return Limit(cycles, bound)


def lanes_of(kernel: EmittedKernel, target: Target) -> int:
    """Elements of the kernel's float type in one vector of the target."""
    sizes = [p.product.dtype.nbytes for p in kernel.parts if p.product is not None]
    sizes = sizes or [b.dtype.nbytes for b in kernel.buffers if b.dtype.is_float]
    return target.lanes(max(sizes, default=4))


def predicted_cycles(part: KernelPart, sizes: Sizes, target: Target) -> float:
    """Of one run of a part, its operands being in the nearest cache. `sizes` are of its own dims."""
    if part.product is not None:
        assert isinstance(part.schedule, TileSchedule)
        found = sized(part.product, sizes)
        if not found.row_count.value or not found.column.extent.value:
            return 0.0
        rate = part.schedule.lanes * target.fma.ports
        return predict(found, part.schedule, Numbers.from_target(target)) + _apart(part, sizes) / rate
    if part.transform is not None:
        return _apart(part, sizes) / (target.lanes(part.transform.source.dtype.nbytes) * target.fma.ports)
    points = prod(_value(a.extent, sizes) for a in part.nest.axes)
    return part.cost * points / target.fma.ports


def sized(found: Product, sizes: Sizes) -> Product:
    """A product whose extents are numbers."""

    def fixed(axes: Iterable[Axis]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, IntExpr.of(_value(a.extent, sizes))) for a in axes)

    (column,) = fixed([found.column])
    return replace(
        found,
        batch=fixed((*found.batch, *found.repeats)),
        rows=fixed(found.rows),
        column=column,
        reduction=fixed(found.reduction),
    )


def _slots(part: KernelPart, sizes: Sizes) -> int:
    if not isinstance(part.nest, Nest):
        return prod(_value(a.extent, sizes) for a in part.nest.axes)
    return _apart(part, sizes) + _multiply_adds(part, sizes)


def _apart(part: KernelPart, sizes: Sizes) -> int:
    """Operations that are no multiply-adds."""
    total = 0 if part.transform is None else _of_tiles(part.transform, sizes)
    for stage, steps in _stages(part, sizes):
        functions = sum(function_cost(p.function) for p in parts(stage.value) if isinstance(p, Apply))
        total += steps * (functions + (stage.kind != "store") - 2 * _is_fused(stage))
    return total


def _of_tiles(found: Transform, sizes: Sizes) -> int:
    """Along the rows' line for each column of operands, then along the columns' for each row of results."""
    rows, columns = found.rows, found.columns
    tile = operations(rows.matrix) * columns.operands + operations(columns.matrix) * rows.results
    return tile * prod(_value(a.extent, sizes) for a in (*found.tile_axes(), found.vector))


def _multiply_adds(part: KernelPart, sizes: Sizes) -> int:
    return sum(steps for stage, steps in _stages(part, sizes) if _is_fused(stage))


def _stages(part: KernelPart, sizes: Sizes) -> Iterator[tuple[Stage, int]]:
    """Each stage, and how often its value is computed."""
    if not isinstance(part.nest, Nest):
        return
    points = prod(_value(a.extent, sizes) for a in part.nest.axes)
    stages = part.nest.stages
    for stage in stages if part.transform is None else stages[1:]:
        yield stage, points * prod(_value(a.extent, sizes) for a in stage.axes)


def _is_fused(stage: Stage) -> bool:
    """Whether each step is a multiply-add."""
    value = stage.value
    return stage.kind == "sum" and isinstance(value, Apply) and value.function == "mul"


def _touched(kernel: EmittedKernel, dims: Sizes) -> dict[int, int]:
    """Of each operand, the most bytes that its loads can touch: a gather reads few rows of a table."""
    found: dict[int, int] = {}
    for part in kernel.parts:
        for stage, steps in _stages(part, dims):
            for load in loads(stage.value):
                if load.buffer.role != "temp":
                    number = int(load.buffer.name[1:])
                    found[number] = found.get(number, 0) + steps * load.buffer.dtype.nbytes
    return found


def _level(nbytes: int, target: Target) -> tuple[str, float]:
    if nbytes <= target.cache.l2:
        return "L2", target.bandwidth.l2
    if nbytes <= target.cache.l3:
        return "L3", target.bandwidth.l3
    return "memory", target.bandwidth.memory


def _nbytes(buffer: Buffer, sizes: Sizes) -> int:
    count = prod(_value(d, sizes) for d in buffer.shape)
    return -(-count * buffer.dtype.bits // 8)


def _value(expr: IntExpr, sizes: Sizes) -> int:
    """What data decides counts as 1, as everywhere where work is estimated."""
    if expr.is_static:
        return expr.value
    return max(0, expr.evaluate({name: sizes.get(name, 1) for name in expr.symbols()}))
