"""The numbers of a target that kernels are chosen by; no names, no features, no dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class _Fma(Protocol):
    @property
    def ports(self) -> int: ...
    @property
    def latency(self) -> int: ...
    @property
    def broadcast(self) -> str: ...


class _Cache(Protocol):
    @property
    def l1(self) -> int: ...
    @property
    def l2(self) -> int: ...


class _Tile(Protocol):
    @property
    def rows(self) -> int: ...
    @property
    def vectors(self) -> int: ...
    @property
    def unroll(self) -> int: ...
    @property
    def slices(self) -> bool: ...
    @property
    def slice_bytes(self) -> int: ...


class _Dot(Protocol):
    @property
    def rows(self) -> str: ...
    @property
    def group(self) -> int: ...
    @property
    def operations(self) -> int: ...


class TargetLike(Protocol):
    """The part of a target descriptor that is read here."""

    @property
    def vector_bytes(self) -> int: ...
    @property
    def vector_registers(self) -> int: ...
    @property
    def fma(self) -> _Fma: ...
    @property
    def cache(self) -> _Cache: ...
    @property
    def tile(self) -> _Tile: ...
    @property
    def dot(self) -> _Dot: ...


@dataclass(frozen=True, slots=True)
class Numbers:
    vector_bytes: int
    vector_registers: int
    fma_ports: int
    fma_latency: int
    """Cycles."""
    fma_broadcast: str
    """`memory`: a scalar operand is broadcast by its load; `lane`: taken from a lane of a register."""
    l1: int
    """Bytes."""
    l2: int
    tile_rows: int
    tile_vectors: int
    tile_unroll: int
    tile_slices: bool = True
    """Whether cutting long reductions gains anything."""
    dot_rows: str = "int16"
    """What products of 8-bit integers read rows as: 16 bits, or 8 where there are instructions for it."""
    dot_group: int = 1
    """Steps of the reduction that one product of theirs takes."""
    dot_operations: int = 1
    """Instructions of it."""
    tile_slice_bytes: int = 0
    """Of a panel's slice; 0: a share of the first-level cache."""

    @classmethod
    def from_target(cls, target: TargetLike) -> Numbers:
        return cls(
            vector_bytes=target.vector_bytes,
            vector_registers=target.vector_registers,
            fma_ports=target.fma.ports,
            fma_latency=target.fma.latency,
            fma_broadcast=target.fma.broadcast,
            l1=target.cache.l1,
            l2=target.cache.l2,
            tile_rows=target.tile.rows,
            tile_vectors=target.tile.vectors,
            tile_unroll=target.tile.unroll,
            tile_slices=target.tile.slices,
            dot_rows=target.dot.rows,
            dot_group=target.dot.group,
            dot_operations=target.dot.operations,
            tile_slice_bytes=target.tile.slice_bytes,
        )

    def lanes(self, nbytes: int) -> int:
        """Elements of `nbytes` in one vector."""
        return max(1, self.vector_bytes // nbytes)
