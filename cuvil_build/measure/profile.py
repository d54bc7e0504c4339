"""What the kernels of a module take inside its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuvil_build.errors import MissingFile
from cuvil_build.measure.runtimes import Feeds


@dataclass(frozen=True, slots=True)
class CallTime:
    """One call of a kernel, medians over runs."""

    kernel: str
    nodes: str
    """Names of the nodes that it computes, the first ones of many."""
    launch: int
    """Calls of one launch run at the same time: each has the part of its time that it was busy for."""
    ns: float
    busy_ns: float
    """Over all threads."""
    flops: int | None = None
    nbytes: int | None = None
    """Each operand counted once."""


@dataclass(frozen=True, slots=True)
class ModuleProfile:
    threads: int
    run_ns: float
    calls: tuple[CallTime, ...]

    @property
    def kernel_ns(self) -> float:
        return sum(call.ns for call in self.calls)

    @property
    def busy_ns(self) -> float:
        return sum(call.busy_ns for call in self.calls)


def profile_module(folder: Path, calls_file: Path, feeds: Feeds, threads: int, rounds: int) -> ModuleProfile:
    import cuvil

    if not calls_file.is_file():
        raise MissingFile(f"{folder} has no list of its calls", hint="build the module again")
    rows: list[Mapping[str, Any]] = json.loads(calls_file.read_text(encoding="utf-8"))
    with cuvil.load(folder, threads=threads) as module:
        times = module.profile(feeds, rounds)
    if len(rows) != len(times.wall_ns):
        raise MissingFile(f"{calls_file} is of another module", hint="build the module again")
    return ModuleProfile(threads, times.run_ns, tuple(call_times(rows, times.wall_ns, times.busy_ns)))


def call_times(
    rows: list[Mapping[str, Any]], wall_ns: tuple[float, ...], busy_ns: tuple[float, ...]
) -> list[CallTime]:
    wall: dict[int, float] = {}
    busy: dict[int, float] = {}
    for row, whole, own in zip(rows, wall_ns, busy_ns):
        launch = int(row["launch"])
        wall[launch] = wall.get(launch, 0.0) + whole
        busy[launch] = busy.get(launch, 0.0) + own
    found = []
    for row, own in zip(rows, busy_ns):
        launch = int(row["launch"])
        share = own / busy[launch] if busy[launch] else 0.0
        nbytes = row["weight_bytes"] + row["activation_bytes"] if "weight_bytes" in row else None
        found.append(
            CallTime(
                str(row["kernel"]),
                str(row["nodes"]),
                launch,
                wall[launch] * share,
                own,
                row.get("flops"),
                nbytes,
            )
        )
    return found
