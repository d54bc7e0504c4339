"""One kernel from one nest, routine or group: canonical form, schedule, loop program, C text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

from cuvil_build.codegen.plan import KernelSpec
from cuvil_build.codegen.printers.c import print_program
from cuvil_build.codegen.printers.c_group import print_group
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal
from cuvil_build.kernel.access import analyse
from cuvil_build.kernel.canonical import Canonical, canonicalise
from cuvil_build.kernel.cost import choose_schedule, estimated_cost
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.flat import FlatNest, flatten
from cuvil_build.kernel.generic_program import build_generic_program
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.group_canonical import CanonicalGroup, CanonicalStep, canonicalise_group
from cuvil_build.kernel.group_program import build_group_program
from cuvil_build.kernel.nest import Axis, Nest
from cuvil_build.kernel.numbers import Numbers, TargetLike
from cuvil_build.kernel.packing import Packing
from cuvil_build.kernel.program import Program
from cuvil_build.kernel.repack import repack_constants
from cuvil_build.kernel.routine import Routine
from cuvil_build.kernel.routine_canonical import canonicalise_routine
from cuvil_build.kernel.routine_program import build_routine_program
from cuvil_build.kernel.schedule import Schedule
from cuvil_build.kernel.schedule_choices import Choices, loop_choices, tile_choices
from cuvil_build.kernel.schedule_values import NestSchedule
from cuvil_build.kernel.stack import array_bytes
from cuvil_build.kernel.tile_plan import TilePlan
from cuvil_build.kernel.tile_product import Product, find_product
from cuvil_build.kernel.tile_program import build_tile_program
from cuvil_build.kernel.tile_schedule import TileSchedule, choose_tiles
from cuvil_build.kernel.widen import widen_constants, widened_packings
from cuvil_build.kernel.winograd_program import build_transform_program
from cuvil_build.kernel.winograd_transform import Transform, find_transform

_PLACEHOLDER = "SYMBOL"
_KEY_DIGITS = 16

Kernel = Nest | Routine | Group
Tuned = Mapping[str, Mapping[int, NestSchedule]]
"""By the key of a kernel and the number of its part: what it runs by instead of what would be chosen."""


@dataclass(frozen=True, slots=True)
class KernelPart:
    """One nest of a kernel, and what it runs by."""

    nest: Nest | Routine
    """As it is emitted: constants may be wider or in another order than in the graph."""
    product: Product | None
    """What register tiles compute."""
    schedule: NestSchedule | None
    """None: plain statements, which have none."""
    is_tuned: bool
    dims: tuple[IntExpr, ...]
    """What its `d0`, `d1`, … are, over the kernel's dims and, in a group, its axes."""
    cost: float
    """Estimated, per point and in scalar operations; of loops alone."""
    transform: Transform | None = None
    """What computes whole tiles of results."""
    repeat: Axis | None = None
    """How often it runs in each step of a point of a group."""


@dataclass(frozen=True, slots=True)
class EmittedKernel:
    spec: KernelSpec
    buffers: tuple[Buffer, ...]
    """The nest's own buffers, in the order of the kernel's argument."""
    dims: tuple[IntExpr, ...]
    """What to pass for `d0`, `d1`, …, over the nest's symbols."""
    packings: dict[str, Packing]
    """How constant buffers (by the nest's names) must be laid out for this kernel."""
    key: str
    """Of what is computed and of the numbers it is computed by: equal whatever the schedule."""
    parts: tuple[KernelPart, ...]
    axes: tuple[Axis, ...] = ()
    """Of a group: its parts run at each point of them."""
    walk: Axis | None = None
    """The steps that each point takes."""
    about: str = ""


@dataclass(frozen=True, slots=True)
class _Emitted:
    spec: KernelSpec
    packings: dict[str, Packing]
    parts: tuple[KernelPart, ...]
    about: str


_emitted: dict[tuple[str, Numbers, tuple[tuple[int, NestSchedule], ...]], _Emitted] = {}


def emit_kernel(
    nest: Kernel,
    target: TargetLike | None,
    *,
    numbers: Numbers | None = None,
    tuned: Tuned | None = None,
) -> EmittedKernel:
    """The C file of a nest for a target, or for given numbers. Equal nests give the same spec."""
    if numbers is None:
        assert target is not None, "a target or its numbers"
        numbers = Numbers.from_target(target)
    canonical = _canonical(nest)
    name = _key(canonical.digest, numbers)
    given = dict(sorted((tuned or {}).get(name, {}).items()))
    key = canonical.digest, numbers, tuple(given.items())
    if key not in _emitted:
        _emitted[key] = _emit(canonical, numbers, given)
    found = _emitted[key]
    named = {f"b{n}": buffer.name for n, buffer in enumerate(canonical.buffers)}
    return EmittedKernel(
        found.spec,
        canonical.buffers,
        canonical.dims,
        {named[b]: packing for b, packing in found.packings.items()},
        name,
        found.parts,
        *_loops(canonical),
        found.about,
    )


def _loops(canonical: Canonical | CanonicalGroup) -> tuple[tuple[Axis, ...], Axis | None]:
    return (canonical.axes, canonical.walk) if isinstance(canonical, CanonicalGroup) else ((), None)


def kernel_dims(nest: Kernel) -> tuple[IntExpr, ...]:
    """What the kernel of a nest is given for its dims."""
    return _canonical(nest).dims


def emit_by(
    nest: Kernel, numbers: Numbers, schedules: Mapping[int, NestSchedule]
) -> tuple[KernelSpec, dict[str, Packing]]:
    """The C file and the packings of a nest whose parts run by schedules that the caller answers for."""
    canonical = _canonical(nest)
    found = _emit(canonical, numbers, schedules, checked=True)
    named = {f"b{n}": buffer.name for n, buffer in enumerate(canonical.buffers)}
    return found.spec, {named[b]: packing for b, packing in found.packings.items()}


def kernel_key(nest: Kernel, numbers: Numbers) -> str:
    """The key that a kernel would have if it were emitted."""
    return _key(_canonical(nest).digest, numbers)


def kernel_choices(nest: Kernel, numbers: Numbers) -> tuple[Choices | None, ...]:
    """What each part of a kernel can run by; None where there is no choice."""
    canonical = _canonical(nest)
    if isinstance(canonical, CanonicalGroup):
        return tuple(_Scheduling(step.canonical, numbers).choices() for step in canonical.steps)
    return (_Scheduling(canonical, numbers).choices(),)


def _key(digest: str, numbers: Numbers) -> str:
    return hashlib.sha256(f"{digest} {astuple(numbers)}".encode()).hexdigest()[:_KEY_DIGITS]


def _canonical(nest: Kernel) -> Canonical | CanonicalGroup:
    if isinstance(nest, Group):
        return canonicalise_group(nest)
    return canonicalise_routine(nest) if isinstance(nest, Routine) else canonicalise(nest)


def _emit(
    canonical: Canonical | CanonicalGroup,
    numbers: Numbers,
    tuned: Mapping[int, NestSchedule],
    checked: bool = False,
) -> _Emitted:
    if isinstance(canonical, CanonicalGroup):
        return _emit_group(canonical, numbers, tuned, checked)
    scheduling = _Scheduling(canonical, numbers, tuned.get(0), checked)
    program, packings = scheduling.program()
    about = describe(canonical.nest)
    symbol, source = _named(canonical.nest.anchor, print_program(program, _PLACEHOLDER, about))
    spec = KernelSpec(symbol, source, program.chunks, program.scratch, program.work, array_bytes(program))
    dims = tuple(IntExpr.of(f"d{n}") for n in range(len(canonical.dims)))
    return _Emitted(spec, packings, (scheduling.part(dims),), about)


class _Scheduling:
    """One nest in its canonical form: what it runs by, and its program."""

    def __init__(
        self,
        canonical: Canonical,
        numbers: Numbers,
        tuned: NestSchedule | None = None,
        checked: bool = False,
    ) -> None:
        self._checked = checked
        self._dims = tuple(f"d{n}" for n in range(len(canonical.dims)))
        self._numbers = numbers
        self._tuned = tuned
        self._wide: dict[str, Buffer] = {}
        self._packings: dict[str, Packing] = {}
        self._product: Product | None = None
        self._transform: Transform | None = None
        self._flat: FlatNest | None = None
        self._nest: Nest | Routine = canonical.nest
        if not isinstance(canonical.nest, Routine):
            self._prepare(canonical.nest)
        self._cost = 0.0
        self.schedule = self._schedule()

    def _prepare(self, nest: Nest) -> None:
        nest, self._wide = widen_constants(nest)
        self._product = find_product(nest)
        self._transform = find_transform(nest)
        if self._product is None and self._transform is None:
            nest, self._packings = repack_constants(nest, self._numbers)
        self._nest = nest

    def choices(self) -> Choices | None:
        if isinstance(self._nest, Routine) or self._transform is not None:
            return None
        if self._product is not None:
            return tile_choices(self._product, self._numbers)
        return loop_choices(self._nest, self._numbers)

    def _schedule(self) -> NestSchedule | None:
        """The tuned one where it is right; that a record has another was said when the record was read."""
        if isinstance(self._nest, Routine) or self._transform is not None:
            return None
        if self._tuned is not None and not self._checked:
            choices = self.choices()
            assert choices is not None
            why = choices.why_unfit(self._tuned)
            if why:
                raise Internal(f"a schedule was not checked: {why}")
        if self._product is not None:
            return self._tuned or choose_tiles(self._product, self._numbers)
        flat = self._flat = flatten(self._nest, analyse(self._nest))
        if isinstance(self._tuned, Schedule):
            self._cost = estimated_cost(flat, self._tuned)
            return self._tuned
        schedule, self._cost = choose_schedule(flat, self._numbers)
        return schedule

    def program(self) -> tuple[Program, dict[str, Packing]]:
        if isinstance(self._nest, Routine):
            return build_routine_program(self._nest, self._dims), {}
        if self._transform is not None:
            return build_transform_program(self._transform, self._numbers), {}
        schedule, packings = self.schedule, self._packings
        if self._product is not None:
            assert isinstance(schedule, TileSchedule)
            program, packings = build_tile_program(self._nest, TilePlan(self._product, schedule))
        else:
            assert isinstance(schedule, Schedule)
            program = build_generic_program(self._nest, self._numbers, schedule, self._flat)
        return program, widened_packings(self._wide, packings)

    def part(self, dims: tuple[IntExpr, ...]) -> KernelPart:
        tuned = self._tuned is not None
        return KernelPart(self._nest, self._product, self.schedule, tuned, dims, self._cost, self._transform)


def _emit_group(
    group: CanonicalGroup, numbers: Numbers, tuned: Mapping[int, NestSchedule], checked: bool
) -> _Emitted:
    found = [_Scheduling(s.canonical, numbers, tuned.get(n), checked) for n, s in enumerate(group.steps)]
    parts = tuple(replace(s.part(step.dims), repeat=step.repeat) for s, step in zip(found, group.steps))
    waiting = iter(found)
    program, packings = build_group_program(group, lambda _: next(waiting).program(), _describe_step)
    about = _describe_group(group)
    symbol, source = _named(group.anchor, print_group(program, _PLACEHOLDER, about))
    stack = max(array_bytes(step.program) for step in program.steps)
    spec = KernelSpec(symbol, source, program.chunks, program.scratch, program.work, stack, nested=1)
    return _Emitted(spec, packings, parts, about)


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
