"""What there is to tune in built variants, in the order of the time that it is said to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cuvil_build.codegen.checks import regions_of
from cuvil_build.codegen.kernels import Kernel, kernel_key
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.kernel.routine import Routine
from cuvil_build.ops.lowered_graph import LoweredGraph
from cuvil_build.target.descriptor import Target
from cuvil_build.tuning.tune import Subject


def subjects_of(
    graph: LoweredGraph, target: Target, rows: Sequence[Mapping[str, Any]], times: Mapping[str, float]
) -> list[Subject]:
    """Kernels of a module with the share of it that they are predicted to take; `rows` are of its
    `schedules.json`. `times` are measured ones, by kernel: where there are any, they decide."""
    shares = _shares(rows, times)
    numbers = Numbers.from_target(target)
    found: dict[str, Subject] = {}
    for item in regions_of(graph.body):
        for nest in item.region.nests:
            key = kernel_key(nest, numbers)
            if key in found or not _has_schedule(nest):
                continue
            sizes = tuned_sizes(graph)
            found[key] = Subject(key, nest, sizes, shares.get(key, 0.0), ", ".join(item.nodes))
    return list(found.values())


def _shares(rows: Sequence[Mapping[str, Any]], times: Mapping[str, float]) -> dict[str, float]:
    """What each kernel takes, in any unit; what was not measured as it is predicted beside what was."""
    predicted: dict[tuple[str, str], float] = {}
    for row in rows:
        place = row["key"], row["kernel"]
        predicted[place] = predicted.get(place, 0.0) + row["calls"] * row["predicted_cycles"]
    both = [(times[kernel], cycles) for (_, kernel), cycles in predicted.items() if kernel in times]
    rate = sum(ns for ns, _ in both) / (sum(cycles for _, cycles in both) or 1.0) if both else 1.0
    shares: dict[str, float] = {}
    for (key, kernel), cycles in predicted.items():
        shares[key] = shares.get(key, 0.0) + times.get(kernel, cycles * rate)
    return shares


def merged(found: Sequence[Subject]) -> list[Subject]:
    """Kernels that several modules share once; the largest share first, as a part of all."""
    total = sum(subject.share for subject in found) or 1.0
    by_key: dict[str, Subject] = {}
    for subject in found:
        known = by_key.get(subject.key)
        share = subject.share / total
        by_key[subject.key] = replace(known or subject, share=share + (known.share if known else 0.0))
    return sorted(by_key.values(), key=lambda subject: (-subject.share, subject.key))


def tuned_sizes(graph: LoweredGraph) -> tuple[dict[str, int], ...]:
    """The typical sizes of free dims, the first ones first; then what memory is planned for."""
    largest = graph.reference_sizes()
    count = max((len(d.spec.typical) for d in graph.dims.values()), default=0)
    found = []
    for number in range(count):
        sizes = dict(largest)
        for dim in graph.dims.values():
            if dim.spec.typical:
                sizes[dim.name] = dim.spec.typical[min(number, len(dim.spec.typical) - 1)]
        found.append(sizes)
    return tuple({tuple(sorted(s.items())): s for s in (*found, largest)}.values())


def _has_schedule(nest: Kernel) -> bool:
    return not isinstance(nest, Routine)
