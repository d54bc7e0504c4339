"""What kernels run by, what that is predicted to take, and what is the least that it could take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cuvil_build.codegen.checks import regions_of
from cuvil_build.codegen.kernels import EmittedKernel, KernelPart, describe
from cuvil_build.codegen.roofline import Memory, lanes_of, limit_of, predicted_cycles, runs_of, work_of
from cuvil_build.kernel.schedule_values import to_values
from cuvil_build.kernel.schedule_words import in_words
from cuvil_build.ops.lowered_graph import LoweredGraph
from cuvil_build.target.descriptor import Target


@dataclass(slots=True)
class _Site:
    """Calls of one kernel with the same dims."""

    kernel: EmittedKernel
    sizes: Mapping[str, int]
    dims: tuple[int, ...]
    nodes: list[list[str]] = field(default_factory=list)


def schedule_report(
    graph: LoweredGraph, emitted: Mapping[int, EmittedKernel], target: Target, memory: Memory
) -> list[dict[str, Any]]:
    """One row for each kernel and sizes, in the order of the first call; `emitted` is by the identity of the
    nest. Of kernels in branches and loops, one run counts."""
    sizes = graph.reference_sizes()
    sites: dict[tuple[str, tuple[int, ...]], _Site] = {}
    for item in regions_of(graph.body):
        for nest in item.region.nests:
            kernel = emitted[id(nest)]
            dims = tuple(d.evaluate({name: sizes.get(name, 1) for name in d.symbols()}) for d in kernel.dims)
            site = sites.setdefault((kernel.spec.symbol, dims), _Site(kernel, sizes, dims))
            site.nodes.append(list(item.nodes))
    return [_row(site, target, memory) for site in sites.values()]


def _row(site: _Site, target: Target, memory: Memory) -> dict[str, Any]:
    kernel = site.kernel
    dims = {f"d{n}": value for n, value in enumerate(site.dims)}
    parts = []
    for part in kernel.parts:
        runs, own = runs_of(kernel, part, dims)
        parts.append(_part_row(part, runs * predicted_cycles(part, own, target)))
    work = work_of(kernel, site.sizes)
    limit = limit_of(work, lanes_of(kernel, target), target, memory)
    return {
        "kernel": kernel.spec.symbol,
        "key": kernel.key,
        "about": kernel.about,
        "calls": len(site.nodes),
        "nodes": site.nodes,
        "dims": dims,
        "parts": parts,
        "flops": work.flops,
        "product_flops": 2 * work.products,
        "chunks": kernel.spec.chunks.evaluate(dims),
        "weight_bytes": work.weight_bytes,
        "activation_bytes": work.activation_bytes,
        "predicted_cycles": round(max(limit.cycles, sum(p["cycles"] for p in parts))),
        "limit_cycles": round(limit.cycles),
        "bound": limit.bound,
    }


def _part_row(part: KernelPart, cycles: float) -> dict[str, Any]:
    return {
        "about": describe(part.nest),
        "anchor": part.nest.anchor,
        "words": in_words(part.schedule),
        "schedule": None if part.schedule is None else to_values(part.schedule),
        "tuned": part.is_tuned,
        "cycles": round(cycles),
    }
