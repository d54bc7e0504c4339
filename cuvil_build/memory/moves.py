"""Moves that happen at once, as copies one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import IntExpr


@dataclass(frozen=True, slots=True)
class Move:
    """The bytes of a value go to the storage of another."""

    source: str
    target: str
    nbytes: IntExpr


def in_order(
    moves: Sequence[Move], storage: Callable[[str], str], stop: str
) -> tuple[tuple[Move, ...], list[Move]]:
    """The copies, and which of them are stops: moves to storage that must be made for it, named `stop` and a
    number. `storage` says what values share bytes. A copy waits until nobody reads its target; where all
    wait for each other, one source takes a stop."""
    pending = [m for m in moves if storage(m.source) != storage(m.target)]
    done: list[Move] = []
    stops: list[Move] = []
    while pending:
        read = [storage(m.source) for m in pending]
        ready = [m for m in pending if storage(m.target) not in read]
        if ready:
            done += ready
            pending = [m for m in pending if m not in ready]
            continue
        held = pending[0]
        stops.append(Move(held.source, f"{stop}{len(stops)}", held.nbytes))
        done.append(stops[-1])
        source = storage(held.source)
        pending = [
            Move(stops[-1].target, m.target, m.nbytes) if storage(m.source) == source else m for m in pending
        ]
    return tuple(done), stops
