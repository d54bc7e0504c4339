"""One kernel from one nest, routine or group: canonical form, schedule, loop program, C text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cuvil_build.codegen.plan import KernelSpec
from cuvil_build.codegen.printers.c import print_program
from cuvil_build.codegen.printers.c_group import print_group
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.canonical import Canonical, canonicalise
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.generic_program import build_generic_program
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.group_canonical import CanonicalGroup, CanonicalStep, canonicalise_group
from cuvil_build.kernel.group_program import build_group_program
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.numbers import Numbers, TargetLike
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.program import Program
from cuvil_build.kernel.repack import repack_constants
from cuvil_build.kernel.routine import Routine
from cuvil_build.kernel.routine_canonical import canonicalise_routine
from cuvil_build.kernel.routine_program import build_routine_program
from cuvil_build.kernel.stack import array_bytes
from cuvil_build.kernel.tile_plan import plan_tiles
from cuvil_build.kernel.tile_program import build_tile_program
from cuvil_build.kernel.widen import widen_constants, widened_packings

_PLACEHOLDER = "SYMBOL"


@dataclass(frozen=True, slots=True)
class EmittedKernel:
    spec: KernelSpec
    buffers: tuple[Buffer, ...]
    """The nest's own buffers, in the order of the kernel's argument."""
    dims: tuple[IntExpr, ...]
    """What to pass for `d0`, `d1`, …, over the nest's symbols."""
    packings: dict[str, Packing]
    """How constant buffers (by the nest's names) must be laid out for this kernel."""


_emitted: dict[tuple[str, Numbers], tuple[KernelSpec, dict[str, Packing]]] = {}


def emit_kernel(
    nest: Nest | Routine | Group, target: TargetLike | None, *, numbers: Numbers | None = None
) -> EmittedKernel:
    """The C file of a nest for a target, or for given numbers. Equal nests give the same spec."""
    if numbers is None:
        assert target is not None, "a target or its numbers"
        numbers = Numbers.from_target(target)
    canonical = _canonical(nest)
    key = canonical.digest, numbers
    if key not in _emitted:
        _emitted[key] = _emit(canonical, numbers)
    spec, packings = _emitted[key]
    named = {f"b{n}": buffer.name for n, buffer in enumerate(canonical.buffers)}
    return EmittedKernel(
        spec, canonical.buffers, canonical.dims, {named[b]: packing for b, packing in packings.items()}
    )


def kernel_dims(nest: Nest | Routine | Group) -> tuple[IntExpr, ...]:
    """What the kernel of a nest is given for its dims."""
    return _canonical(nest).dims


def _canonical(nest: Nest | Routine | Group) -> Canonical | CanonicalGroup:
    if isinstance(nest, Group):
        return canonicalise_group(nest)
    return canonicalise_routine(nest) if isinstance(nest, Routine) else canonicalise(nest)


def _emit(canonical: Canonical | CanonicalGroup, numbers: Numbers) -> tuple[KernelSpec, dict[str, Packing]]:
    if isinstance(canonical, CanonicalGroup):
        return _emit_group(canonical, numbers)
    program, packings = _program(canonical, numbers)
    text = print_program(program, _PLACEHOLDER, describe(canonical.nest))
    symbol, source = _named(canonical.nest.anchor, text)
    spec = KernelSpec(symbol, source, program.chunks, program.scratch, program.work, array_bytes(program))
    return spec, packings


def _program(canonical: Canonical, numbers: Numbers) -> tuple[Program, dict[str, Packing]]:
    nest = canonical.nest
    if isinstance(nest, Routine):
        dims = tuple(f"d{n}" for n in range(len(canonical.dims)))
        return build_routine_program(nest, dims), {}
    nest, wide = widen_constants(nest)
    plan = plan_tiles(nest, numbers)
    packings: dict[str, Packing] = {}
    if plan is not None:
        program, packings = build_tile_program(nest, plan)
    else:
        nest, packings = repack_constants(nest, numbers)
        program = build_generic_program(nest, numbers)
    return program, widened_packings(wide, packings)


def _emit_group(group: CanonicalGroup, numbers: Numbers) -> tuple[KernelSpec, dict[str, Packing]]:
    program, packings = build_group_program(group, lambda s: _program(s.canonical, numbers), _describe_step)
    symbol, source = _named(group.anchor, print_group(program, _PLACEHOLDER, _describe_group(group)))
    stack = max(array_bytes(step.program) for step in program.steps)
    spec = KernelSpec(symbol, source, program.chunks, program.scratch, program.work, stack, nested=1)
    return spec, packings


def _named(anchor: str, text: str) -> tuple[str, str]:
    """The kernel's symbol, and its text with it."""
    symbol = f"{anchor}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return symbol, text.replace(_PLACEHOLDER, symbol)


def _describe_step(step: CanonicalStep) -> str:
    return f"{describe(step.canonical.nest)} On {', '.join(step.buffers)}."


def _describe_group(group: CanonicalGroup) -> str:
    axes = ", ".join(str(a.extent) for a in group.axes)
    inner = ", ".join(s.canonical.nest.anchor for s in group.steps)
    return f"{group.anchor} over ({axes}): {inner}."


def describe(nest: Nest | Routine) -> str:
    """What a kernel computes, in one line and without where it is used."""
    axes = ", ".join(str(a.extent) for a in nest.axes)
    stages = "statements"
    if isinstance(nest, Nest):
        stages = "; ".join(_stage_text(s.kind, [str(a.extent) for a in s.axes]) for s in nest.stages)
    buffers = ", ".join(
        f"{b.name} {b.dtype}[{', '.join(map(str, b.shape))}]"
        for b in sorted(nest.buffers(), key=lambda b: int(b.name[1:]))
    )
    return f"{nest.anchor} over ({axes}): {stages}. {buffers}."


def _stage_text(kind: str, extents: list[str]) -> str:
    return f"{kind} over ({', '.join(extents)})" if extents else kind
