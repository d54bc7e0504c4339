"""Targets that share one module: a list in cuvil.yaml, what asks least of a machine first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cuvil_build.errors import NotYet
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target


def load_members(names: Sequence[str], folders: Sequence[Path]) -> tuple[Target, ...]:
    """The targets of a list; the first decides what kernels look like, the rest how they are compiled and how
    many rows their register tiles have.

    Members have one graph, one memory plan and one file of weights, so all that shapes these must agree.
    """
    first, *others = (load_target(name, folders) for name in names)
    for other in others:
        if first.runner != "wasm":
            raise NotYet(
                f"several targets in one library are not built yet: '{first.name}' and '{other.name}'",
                hint="name one; WebAssembly targets may be listed, and the loader chooses",
            )
        if _shape(other) != _shape(first) or not set(first.features) <= set(other.features):
            raise NotYet(
                f"'{other.name}' beside '{first.name}' is not built yet: members must have the same vectors, "
                "caches and tiles but for their rows, and the features of the first",
                hint="make two targets of them",
            )
    return (first, *others)


def library_name(target: Target, member: str = "") -> str:
    """File name of the module's library, or of a member's own."""
    return f"module.{member}{target.library_suffix}" if member else f"module{target.library_suffix}"


def unit_name(unit: str, member: str) -> str:
    """Of a unit that a member compiles for itself."""
    return f"{unit}@{member}"


def units_of(units: Sequence[str], member: str = "") -> list[str]:
    """What a member's library is linked from: its own units, and the first's where it has none of its own."""
    own = {name for name in units if member and name == unit_name(name.partition("@")[0], member)}
    replaced = {name.partition("@")[0] for name in own}
    return [name for name in units if name in own or ("@" not in name and name not in replaced)]


def _shape(target: Target) -> dict[str, object]:
    numbers = target.numbers()
    multiply_add = {key: numbers["fma"][key] for key in ("ports", "broadcast")}
    tile = {**numbers["tile"], "rows": ""}
    return {**numbers, "fma": multiply_add, "tile": tile, "cpu": "", "features": "", "gcc_march": ""}
