"""The canonical form of a group: its nests in their canonical forms, and how they are wired."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.canonical import Canonical, buffer_text, canonicalise
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.nest import Axis


@dataclass(frozen=True, slots=True)
class CanonicalStep:
    """One nest of the group."""

    canonical: Canonical
    buffers: tuple[str, ...]
    """What its `b0`, `b1`, … are: `b0`, … of the group, or `s0`, … of the scratch."""
    dims: tuple[IntExpr, ...]
    """What its `d0`, `d1`, … are, over the group's dims and axes."""


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


def canonicalise_group(group: Group) -> CanonicalGroup:
    nests = [canonicalise(nest) for nest in group.nests]
    buffers = group.buffers()
    names = {b.name: f"b{n}" for n, b in enumerate(buffers)}
    names |= {b.name: f"s{n}" for n, b in enumerate(group.scratch)}
    axes = {a.name: IntExpr.of(f"g{n}") for n, a in enumerate(group.axes)}
    dims = _Dims(axes)
    extents = [a.extent for a in group.axes]
    dims.collect(
        [*extents, *(d for c in nests for d in c.dims), *(d for b in group.scratch for d in b.shape)]
    )
    outer = tuple(Axis(str(axes[a.name]), dims(a.extent)) for a in group.axes)
    steps = tuple(
        CanonicalStep(c, tuple(names[b.name] for b in c.buffers), tuple(dims(d) for d in c.dims))
        for c in nests
    )
    scratch = tuple(
        replace(b, name=names[b.name], shape=tuple(dims(d) for d in b.shape)) for b in group.scratch
    )
    digest = _digest(group.anchor, outer, steps, scratch)
    return CanonicalGroup(group.anchor, outer, steps, scratch, buffers, dims.found(), digest)


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
    anchor: str, axes: Sequence[Axis], steps: Sequence[CanonicalStep], scratch: Sequence[Buffer]
) -> str:
    lines = [f"group {anchor}", " ".join(f"{a.name}<{a.extent}" for a in axes)]
    lines += [buffer_text(b) for b in scratch]
    lines += [
        f"{s.canonical.digest} {' '.join(s.buffers)} {', '.join(map(str, s.dims))}" for s in steps
    ]  # fmt: skip
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
