"""One kernel from one nest or routine: canonical form, schedule, loop program, C text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cuvil_build.codegen.plan import KernelSpec
from cuvil_build.codegen.printers.c import print_program
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.canonical import Canonical, canonicalise
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.generic_program import build_generic_program
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
    nest: Nest | Routine, target: TargetLike | None, *, numbers: Numbers | None = None
) -> EmittedKernel:
    """The C file of a nest for a target, or for given numbers. Equal nests give the same spec."""
    if numbers is None:
        assert target is not None, "a target or its numbers"
        numbers = Numbers.from_target(target)
    canonical = canonicalise_routine(nest) if isinstance(nest, Routine) else canonicalise(nest)
    key = canonical.digest, numbers
    if key not in _emitted:
        _emitted[key] = _emit(canonical, numbers)
    spec, packings = _emitted[key]
    named = {f"b{n}": buffer.name for n, buffer in enumerate(canonical.buffers)}
    return EmittedKernel(
        spec, canonical.buffers, canonical.dims, {named[b]: packing for b, packing in packings.items()}
    )


def _emit(canonical: Canonical, numbers: Numbers) -> tuple[KernelSpec, dict[str, Packing]]:
    nest = canonical.nest
    if isinstance(nest, Routine):
        dims = tuple(f"d{n}" for n in range(len(canonical.dims)))
        return _spec(nest, build_routine_program(nest, dims)), {}
    nest, wide = widen_constants(nest)
    plan = plan_tiles(nest, numbers)
    packings: dict[str, Packing] = {}
    if plan is not None:
        program, packings = build_tile_program(nest, plan, numbers)
    else:
        nest, packings = repack_constants(nest, numbers)
        program = build_generic_program(nest, numbers)
    return _spec(nest, program), widened_packings(wide, packings)


def _spec(nest: Nest | Routine, program: Program) -> KernelSpec:
    text = print_program(program, _PLACEHOLDER, describe(nest))
    symbol = f"{nest.anchor}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    source = text.replace(_PLACEHOLDER, symbol)
    return KernelSpec(symbol, source, program.chunks, program.scratch, program.work, array_bytes(program))


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
