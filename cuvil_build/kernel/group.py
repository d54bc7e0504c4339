"""A group: several nests as one kernel, one after the other for each point of the outer axes that they share.

What the nests hand to each other at a point is private to it: it lies in the thread's scratch and is still in
the cache when it is read. Example, attention of one head a point:

    axes    head
    nest    contraction over (row, key):  scores[row, key] = sum of q[head, row, d] * k[head, key, d]
    nest    reduce over (row):            weights[row, key] = softmax of scores[row, key]
    nest    contraction over (row, d):    y[row, head, d] = sum of weights[row, key] * v[head, key, d]

The outer axes are symbols of the nests' index expressions. An axis may be blocks of a longer one; then the
nests' own axis has as many steps as the block has rows.

A point may walk: it takes steps in order, and its scratch keeps what it holds from one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.expr import Buffer
from cuvil_build.kernel.nest import Axis, Nest


@dataclass(frozen=True, slots=True)
class Walk:
    """The steps that each point takes in order."""

    axis: Axis
    """A symbol of the nests, as the outer axes are."""
    repeats: tuple[Axis | None, ...]
    """How often each nest runs in a step, one time after the other: symbols of these nests. Its extent may
    depend on the step, and be zero."""
    places: tuple[tuple[str, IntExpr], ...] = ()
    """Further symbols of the nests, and what they are in a step: indices stay affine in them."""


@dataclass(frozen=True, slots=True)
class Part:
    """A block of a constant that nests read as if it were all of it, so that it is packed for them."""

    whole: Buffer
    block: Buffer
    """What the nests load."""
    dim: int
    """In which blocks lie one after the other."""
    start: int
    """Of the first of them."""
    axis: str
    """The outer axis that numbers them."""


@dataclass(frozen=True, slots=True)
class Group:
    anchor: str
    """`attention`: two products around a softmax; else `group`."""
    axes: tuple[Axis, ...]
    """Points are independent: any thread may take any of them."""
    nests: tuple[Nest, ...]
    """Run in this order at each point; without names of nodes."""
    scratch: tuple[Buffer, ...]
    """Private to one point; the nests' `inner` buffers of these names."""
    nodes: tuple[str, ...] = ()
    walk: Walk | None = None
    parts: tuple[Part, ...] = ()

    def loops(self) -> tuple[Axis, ...]:
        """Everything that is a symbol of its nests: outer axes, steps, repeats."""
        walk = () if self.walk is None else (self.walk.axis, *(r for r in self.walk.repeats if r is not None))
        return (*self.axes, *dict.fromkeys(walk))

    def places(self) -> dict[str, IntExpr]:
        """Symbols of its nests that are numbers of a step."""
        return {} if self.walk is None else dict(self.walk.places)

    def repeats(self) -> tuple[Axis | None, ...]:
        """For each nest."""
        return (None,) * len(self.nests) if self.walk is None else self.walk.repeats

    def buffers(self) -> tuple[Buffer, ...]:
        """What the group reads or writes outside of its scratch, each once, in order of first use."""
        own = {b.name for b in self.scratch}
        wholes = {p.block.name: p.whole for p in self.parts}
        found: dict[str, Buffer] = {}
        for nest in self.nests:
            for buffer in nest.buffers():
                if buffer.name not in own:
                    buffer = wholes.get(buffer.name, buffer)
                    found.setdefault(buffer.name, buffer)
        return tuple(found.values())

    def written(self) -> frozenset[str]:
        """Names of the buffers outside of its scratch that it stores to."""
        targets = {s.target.name for nest in self.nests for s in nest.stages}
        return frozenset(b.name for b in self.buffers() if b.name in targets)
