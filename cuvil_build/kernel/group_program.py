"""A group as loop programs: one for each of its nests, and what the kernel does at each point to call them.

chunk = one point of the outer axes
  nest    its own program over all its chunks, with the point among its dims
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ZERO, IntExpr, ceil_divide, maximum, product
from cuvil_build.cuir.limits import Limits, limits_of
from cuvil_build.errors import Internal
from cuvil_build.kernel.group_canonical import CanonicalGroup, CanonicalStep
from cuvil_build.kernel.nest import Axis
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.program import Program

_ALIGN = 64
Build = Callable[[CanonicalStep], tuple[Program, dict[str, Packing]]]


@dataclass(frozen=True, slots=True)
class GroupStep:
    program: Program
    buffers: tuple[str, ...]
    """For each buffer of the program: one of the kernel, or one in scratch."""
    dims: tuple[IntExpr, ...]
    """Of the program, over the kernel's dims and axes."""
    chunks: IntExpr
    about: str


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


def build_group_program(
    group: CanonicalGroup, build: Build, describe: Callable[[CanonicalStep], str]
) -> tuple[GroupProgram, dict[str, Packing]]:
    """The program, and how constants (by the group's names) must be packed. `build` makes one nest's."""
    packings: dict[str, Packing] = {}
    steps: list[GroupStep] = []
    own: list[IntExpr] = []
    work: list[IntExpr] = []
    most = {a.name: _limits(a) for a in group.axes}
    for step in group.steps:
        program, packed = build(step)
        values = {f"d{n}": d for n, d in enumerate(step.dims)}
        named = {f"b{n}": name for n, name in enumerate(step.buffers)}
        packings |= {named[b]: packing for b, packing in packed.items()}
        buffers = tuple(named[p.name] for p in program.params)
        chunks = program.chunks.substitute(values)
        steps.append(GroupStep(program, buffers, step.dims, chunks, describe(step)))
        largest = {f"d{n}": _largest(d, most) for n, d in enumerate(step.dims)}
        own.append(program.scratch.substitute(largest))
        work.append((program.work * program.chunks).substitute(largest))
    places: list[tuple[str, IntExpr]] = []
    offset = ZERO
    for buffer in group.scratch:
        places.append((buffer.name, offset))
        offset = offset + _aligned(buffer.dtype.bytes_of(product(buffer.shape)))
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
    ), packings


def _aligned(nbytes: IntExpr) -> IntExpr:
    return ceil_divide(nbytes, _ALIGN) * _ALIGN


def _limits(axis: Axis) -> Limits:
    return ZERO, axis.extent - 1


def _largest(size: IntExpr, most: Mapping[str, Limits]) -> IntExpr:
    """At any point: sizes of scratch grow with every dim."""
    found = limits_of(size, most)[1]
    if found is None:
        raise Internal(f"{size} has no limit over {', '.join(most)}")
    return found
