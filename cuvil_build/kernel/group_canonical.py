"""The canonical form of a group: its nests in their canonical forms, and how they are wired."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.canonical import Canonical, buffer_text, canonicalise
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.group import Group, Part
from cuvil_build.kernel.nest import Axis


@dataclass(frozen=True, slots=True)
class CanonicalStep:
    """One nest of the group."""

    canonical: Canonical
    buffers: tuple[str, ...]
    """What its `b0`, `b1`, … are: `b0`, … of the group, `s0`, … of the scratch, or `p0`, … of the parts."""
    dims: tuple[IntExpr, ...]
    """What its `d0`, `d1`, … are, over the group's dims and axes."""
    repeat: Axis | None = None
    """How often it runs in each step of a point."""


@dataclass(frozen=True, slots=True)
class CanonicalGroup:
    anchor: str
    axes: tuple[Axis, ...]
    """`g0`, `g1`, …."""
    steps: tuple[CanonicalStep, ...]
    scratch: tuple[Buffer, ...]
    """`s0`, `s1`, …, with sizes over the group's dims."""
    buffers: tuple[Buffer, ...]
    """What `b0`, `b1`, … stand for."""
    dims: tuple[IntExpr, ...]
    """What `d0`, `d1`, … stand for."""
    digest: str
    walk: Axis | None = None
    parts: tuple[Part, ...] = ()
    """`p0`, `p1`, … of `b0`, `b1`, …."""


def canonicalise_group(group: Group) -> CanonicalGroup:
    nests = [canonicalise(nest) for nest in group.nests]
    buffers = group.buffers()
    names = {b.name: f"b{n}" for n, b in enumerate(buffers)}
    names |= {b.name: f"s{n}" for n, b in enumerate(group.scratch)}
    names |= {p.block.name: f"p{n}" for n, p in enumerate(group.parts)}
    axes = {a.name: IntExpr.of(f"g{n}") for n, a in enumerate(group.loops())}
    dims = _Dims(axes)
    places = group.places()
    sizes = [[d.substitute(places) for d in c.dims] for c in nests]
    extents = [a.extent for a in group.loops()]
    dims.collect([*extents, *(d for own in sizes for d in own), *(d for b in group.scratch for d in b.shape)])

    def renamed(axis: Axis) -> Axis:
        return Axis(str(axes[axis.name]), dims(axis.extent))

    outer = tuple(map(renamed, group.axes))
    walk = None if group.walk is None else renamed(group.walk.axis)
    steps = tuple(
        CanonicalStep(
            c,
            tuple(names[b.name] for b in c.buffers),
            tuple(map(dims, own)),
            None if repeat is None else renamed(repeat),
        )
        for c, own, repeat in zip(nests, sizes, group.repeats(), strict=True)
    )
    parts = tuple(
        replace(
            p,
            whole=replace(p.whole, name=names[p.whole.name]),
            block=replace(p.block, name=names[p.block.name]),
            axis=str(axes[p.axis]),
        )
        for p in group.parts
    )
    scratch = tuple(
        replace(b, name=names[b.name], shape=tuple(dims(d) for d in b.shape)) for b in group.scratch
    )
    digest = _digest(group.anchor, outer, steps, scratch, walk, parts)
    return CanonicalGroup(group.anchor, outer, steps, scratch, buffers, dims.found(), digest, walk, parts)


class _Dims:
    """Sizes that do not depend on the point become dims as a whole; of the others, their symbols do."""

    def __init__(self, axes: Mapping[str, IntExpr]) -> None:
        self._axes = axes
        self._dims: dict[IntExpr, IntExpr] = {}

    def collect(self, sizes: Sequence[IntExpr]) -> None:
        for size in sizes:
            if not size.is_static and not size.symbols() & self._axes.keys():
                self._add(size)
        for name in sorted({s for size in sizes for s in self._open(size)}):
            self._add(IntExpr.of(name))

    def _open(self, size: IntExpr) -> frozenset[str]:
        symbols = size.symbols()
        return symbols - self._axes.keys() if symbols & self._axes.keys() else frozenset()

    def _add(self, size: IntExpr) -> None:
        self._dims.setdefault(size, IntExpr.of(f"d{len(self._dims)}"))

    def __call__(self, size: IntExpr) -> IntExpr:
        if size in self._dims:
            return self._dims[size]
        plain = {str(s): d for s, d in self._dims.items() if str(s) in s.symbols()}
        return size.substitute(plain | dict(self._axes))

    def found(self) -> tuple[IntExpr, ...]:
        return tuple(self._dims)


def _digest(
    anchor: str,
    axes: Sequence[Axis],
    steps: Sequence[CanonicalStep],
    scratch: Sequence[Buffer],
    walk: Axis | None,
    parts: Sequence[Part],
) -> str:
    lines = [f"group {anchor}", _axes_text(axes), _axes_text([] if walk is None else [walk])]
    lines += [buffer_text(b) for b in scratch]
    lines += [f"{buffer_text(p.whole)} {buffer_text(p.block)} {p.dim} {p.start} {p.axis}" for p in parts]
    for step in steps:
        repeat = _axes_text([] if step.repeat is None else [step.repeat])
        lines.append(
            f"{step.canonical.digest} {' '.join(step.buffers)} {', '.join(map(str, step.dims))} {repeat}"
        )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _axes_text(axes: Sequence[Axis]) -> str:
    return " ".join(f"{a.name}<{a.extent}" for a in axes)
