"""What a memory plan means at given sizes: how full the arena is, when it is fullest, and what is live there.

All from the data of `memory.json`, so that a plan can be explained without the graph that it was made for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.memory.blocks import aligned


@dataclass(frozen=True, slots=True)
class Live:
    """One block of the arena, at sizes that are known."""

    name: str
    values: tuple[str, ...]
    """Everything that has its bytes there, the block's own name first."""
    nbytes: int
    """What it takes in the arena, alignment included."""
    offset: int
    first: int
    last: int
    """Positions, both included."""
    producer: tuple[str, ...]
    """Nodes of the source model that write it first."""

    @property
    def end(self) -> int:
        return self.offset + self.nbytes

    @property
    def label(self) -> str:
        return f"{', '.join(self.producer)}" if self.producer else self.name


@dataclass(frozen=True, slots=True)
class Sized:
    """A plan at one set of sizes."""

    label: str
    """`maximum`, `typical`, `minimum`; empty for a graph without free dims."""
    sizes: Mapping[str, int]
    arena: int
    lower_bound: int
    """The most that is alive at once."""
    peak: int
    """The first position at which that much is alive."""
    peak_nodes: tuple[str, ...]
    """Nodes of the source model that run there."""
    blocks: tuple[Live, ...]
    """By their first position, then by offset; blocks of no bytes left out."""

    @property
    def waste(self) -> int:
        """Bytes of the arena that no plan could use better at the peak."""
        return max(0, self.arena - self.lower_bound)

    @property
    def live(self) -> tuple[Live, ...]:
        """What is alive at the peak, largest first."""
        found = [b for b in self.blocks if b.first <= self.peak <= b.last]
        return tuple(sorted(found, key=lambda b: (-b.nbytes, b.first, b.name)))


@dataclass(frozen=True, slots=True)
class Extent:
    """A free dim's sizes, as far as they are known."""

    minimum: int
    maximum: int | None
    typical: tuple[int, ...]
    reference: int
    """What memory was planned for."""


def extents(plan: Mapping[str, Any]) -> dict[str, Extent]:
    return {
        name: Extent(row["min"], row["max"], tuple(row["typical"]), row["reference"])
        for name, row in sorted(plan["dims"].items())
    }


def unbounded(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Free dims that the arena depends on and that have no largest size."""
    used = {s for row in plan["blocks"] for s in IntExpr.parse(row["bytes"]).symbols()}
    return tuple(name for name, e in extents(plan).items() if e.maximum is None and name in used)


def explain(plan: Mapping[str, Any]) -> tuple[Sized, ...]:
    """At the largest sizes (those that memory was planned for), at each row of typical ones, at the least."""
    dims = extents(plan)
    if not dims:
        return (sized(plan, "", {}),)
    largest = "assumed" if unbounded(plan) else "maximum"
    wanted = [(largest, {name: e.reference for name, e in dims.items()})]
    for number in range(max(len(e.typical) for e in dims.values())):
        sizes = {
            name: e.typical[min(number, len(e.typical) - 1)] if e.typical else e.reference
            for name, e in dims.items()
        }
        wanted.append(("typical", sizes))
    wanted.append(("minimum", {name: e.minimum for name, e in dims.items()}))
    found: dict[tuple[int, ...], Sized] = {}
    for label, sizes in wanted:
        found.setdefault(tuple(sizes.values()), sized(plan, label, sizes))
    return tuple(found.values())


def sized(plan: Mapping[str, Any], label: str, sizes: Mapping[str, int]) -> Sized:
    """The plan at these sizes of the free dims."""
    values = dict(sizes)
    for name, text in plan["definitions"]:
        values[name] = IntExpr.parse(text).evaluate(values)
    nodes = {row["position"]: tuple(row["nodes"]) for row in plan["items"] if row["nodes"]}
    blocks = sorted(
        (_live(row, values, nodes) for row in plan["blocks"]), key=lambda b: (b.first, b.offset, b.name)
    )
    blocks = [block for block in blocks if block.nbytes]
    peak, most = _peak(blocks, nodes)
    return Sized(
        label,
        dict(sizes),
        IntExpr.parse(plan["arena"]).evaluate(values),
        most,
        peak,
        nodes.get(peak, ()),
        tuple(blocks),
    )


def _live(row: Mapping[str, Any], values: Mapping[str, int], nodes: Mapping[int, tuple[str, ...]]) -> Live:
    return Live(
        row["name"],
        tuple(row.get("values", ())) or (row["name"],),
        aligned(IntExpr.parse(row["bytes"])).evaluate(values),
        IntExpr.parse(row["offset"]).evaluate(values),
        row["first"],
        row["last"],
        nodes.get(row["first"], ()),
    )


def _peak(blocks: Sequence[Live], nodes: Mapping[int, tuple[str, ...]]) -> tuple[int, int]:
    """The position with the most bytes, and how many: of equal ones the first where a node runs."""
    total: dict[int, int] = {}
    for moment in sorted({b.first for b in blocks}):
        total[moment] = sum(b.nbytes for b in blocks if b.first <= moment <= b.last)
    most = max(total.values(), default=0)
    at = [moment for moment, nbytes in total.items() if nbytes == most]
    return next((m for m in at if m in nodes), at[0] if at else 0), most
