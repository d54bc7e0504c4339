"""A group as loop programs: one for each of its nests, and what the kernel does at each point to call them.

chunk = one point of the outer axes
  [step]      of the point's walk, in order
    nest      its own program over all its chunks, with the point among its dims; perhaps several times
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cuvil_build.cuir.dtypes import DTYPES
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr, ceil_divide, maximum, product
from cuvil_build.cuir.limits import Limits, limits_of
from cuvil_build.errors import Internal
from cuvil_build.kernel.group import Part
from cuvil_build.kernel.group_canonical import CanonicalGroup, CanonicalStep
from cuvil_build.kernel.nest import Axis
from cuvil_build.kernel.packing import Packing, as_it_lies
from cuvil_build.kernel.program import Program

_ALIGN = 64
Build = Callable[[CanonicalStep], tuple[Program, dict[str, Packing]]]


@dataclass(frozen=True, slots=True)
class GroupStep:
    program: Program
    buffers: tuple[str, ...]
    """For each buffer of the program: one of the kernel, one in scratch, or a part."""
    dims: tuple[IntExpr, ...]
    """Of the program, over the kernel's dims and axes."""
    chunks: IntExpr
    about: str
    repeat: Axis | None = None


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """Where a point finds its part of a packed constant."""

    name: str
    whole: str
    """A buffer of the kernel."""
    offset: IntExpr
    """Bytes, over the axes."""


@dataclass(frozen=True, slots=True)
class GroupProgram:
    """A whole kernel: its chunks are the points of `axes`."""

    buffers: int
    dims: tuple[str, ...]
    axes: tuple[Axis, ...]
    places: tuple[tuple[str, IntExpr], ...]
    """Buffers in scratch: name and bytes from its start."""
    shared: IntExpr
    """Bytes from the start of the scratch to what is each step's own."""
    steps: tuple[GroupStep, ...]
    chunks: IntExpr
    scratch: IntExpr
    work: IntExpr
    walk: Axis | None = None
    parts: tuple[PlacedPart, ...] = ()


def build_group_program(
    group: CanonicalGroup, build: Build, describe: Callable[[CanonicalStep], str]
) -> tuple[GroupProgram, dict[str, Packing]]:
    """The program, and how constants (by the group's names) must be packed. `build` makes one nest's."""
    packings: dict[str, Packing] = {}
    steps: list[GroupStep] = []
    own: list[IntExpr] = []
    work: list[IntExpr] = []
    most: dict[str, Limits] = {}
    loops = [*group.axes, *([] if group.walk is None else [group.walk])]
    for axis in (*loops, *(s.repeat for s in group.steps if s.repeat is not None)):
        most[axis.name] = ZERO, _largest(axis.extent - 1, most)
    walked = ONE if group.walk is None else group.walk.extent
    blocks: dict[str, Packing] = {}
    for step in group.steps:
        program, packed = build(step)
        values = {f"d{n}": d for n, d in enumerate(step.dims)}
        named = {f"b{n}": name for n, name in enumerate(step.buffers)}
        placed = {named[b]: packing for b, packing in packed.items()}
        packings |= {name: packing for name, packing in placed.items() if name.startswith("b")}
        blocks |= {name: packing for name, packing in placed.items() if name.startswith("p")}
        buffers = tuple(named[p.name] for p in program.params)
        chunks = program.chunks.substitute(values)
        steps.append(GroupStep(program, buffers, step.dims, chunks, describe(step), step.repeat))
        largest = {f"d{n}": _largest(d, most) for n, d in enumerate(step.dims)}
        own.append(program.scratch.substitute(largest))
        times = walked if step.repeat is None else walked * (most[step.repeat.name][1] or ZERO)
        work.append((program.work * program.chunks).substitute(largest) * times)
    places: list[tuple[str, IntExpr]] = []
    offset = ZERO
    for buffer in group.scratch:
        places.append((buffer.name, offset))
        offset = offset + _aligned(buffer.dtype.bytes_of(product(buffer.shape)))
    parts: list[PlacedPart] = []
    for part in group.parts:
        packing = blocks.get(part.block.name) or as_it_lies(part.block)
        nbytes = packing.count * (DTYPES[packing.dtype] if packing.dtype else part.block.dtype).nbytes
        number = IntExpr.of(part.axis)
        parts.append(PlacedPart(part.block.name, part.whole.name, number * nbytes))
        extent = next(a.extent for a in group.axes if a.name == part.axis)
        packings[part.whole.name] = _of_whole(packing, part, Axis(part.axis, extent))
    return GroupProgram(
        len(group.buffers),
        tuple(f"d{n}" for n in range(len(group.dims))),
        group.axes,
        tuple(places),
        offset,
        tuple(steps),
        product(a.extent for a in group.axes),
        offset + _aligned(maximum(*own)),
        sum(work, ZERO),
        group.walk,
        tuple(parts),
    ), packings


def _of_whole(packing: Packing, part: Part, axis: Axis) -> Packing:
    """All blocks of a constant, one after the other, each as it is packed."""
    start = IntExpr.of(axis.name) * part.block.shape[part.dim] + part.start
    index = tuple(i + start if d == part.dim else i for d, i in enumerate(packing.index))
    return replace(packing, batch_axes=(axis, *packing.batch_axes), index=index)


def _aligned(nbytes: IntExpr) -> IntExpr:
    return ceil_divide(nbytes, _ALIGN) * _ALIGN


def _largest(size: IntExpr, most: Mapping[str, Limits]) -> IntExpr:
    """At any point: sizes of scratch grow with every dim."""
    found = limits_of(size, most)[1]
    if found is None:
        raise Internal(f"{size} has no limit over {', '.join(most)}")
    return found
