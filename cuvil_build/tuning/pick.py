"""Which schedules of tuning records the kernels of a module run by. What is not right is refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cuvil_build.codegen.checks import regions_of
from cuvil_build.codegen.kernels import Kernel, kernel_choices, kernel_key
from cuvil_build.errors import InvalidValue
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.schedule_choices import Choices
from cuvil_build.kernel.schedule_values import NestSchedule, from_values, to_values
from cuvil_build.ops.lowered_graph import LoweredGraph
from cuvil_build.tuning.record import Entry


@dataclass(frozen=True, slots=True)
class Picked:
    schedules: Mapping[str, Mapping[int, NestSchedule]] = field(default_factory=dict)
    """By the key of the kernel and the number of its part."""
    warnings: tuple[str, ...] = ()


def kernels_of(graph: LoweredGraph, numbers: Numbers) -> dict[str, Kernel]:
    """One nest for each distinct kernel of a graph, by key."""
    found: dict[str, Kernel] = {}
    for item in regions_of(graph.body):
        for nest in item.region.nests:
            found.setdefault(kernel_key(nest, numbers), nest)
    return found


def pick_schedules(entries: Iterable[Entry], graph: LoweredGraph, numbers: Numbers) -> Picked:
    """Of entries for kernels of the graph; others are of other models."""
    by_kernel: dict[str, list[Entry]] = {}
    for entry in entries:
        by_kernel.setdefault(entry.kernel, []).append(entry)
    schedules: dict[str, dict[int, NestSchedule]] = {}
    warnings: list[str] = []
    for key, nest in sorted(kernels_of(graph, numbers).items()) if by_kernel else ():
        for entry in by_kernel.get(key, ()):
            schedule, why = _schedule(entry, kernel_choices(nest, numbers))
            if schedule is not None:
                schedules.setdefault(key, {})[entry.part] = schedule
            else:
                warnings.append(
                    f"{entry.loc}: kernel {key} keeps what is chosen for it ({entry.about}): {why}"
                )
    return Picked(schedules, tuple(warnings))


def _schedule(entry: Entry, parts: Sequence[Choices | None]) -> tuple[NestSchedule | None, str]:
    """The schedule, or why there is none."""
    choices = parts[entry.part] if entry.part < len(parts) else None
    if choices is None:
        return None, f"it has no part {entry.part} with a schedule"
    try:
        schedule = from_values(entry.schedule)
    except InvalidValue as error:
        return None, error.message
    why = choices.why_unfit(schedule)
    if why:
        return None, f"the schedule does not fit: {why}"
    if dict(entry.instead_of) != to_values(choices.usual):
        return None, "what is chosen without the record is another schedule now; run 'cuvil tune' again"
    return schedule, ""
