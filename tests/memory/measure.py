"""What memory plans take, as a table: `python -m tests.memory.measure MODEL.onnx... [--size DIM=N]...`.

For each model: the arena and the lower bound of its order at the sizes (else at the reference sizes), their
ratio, the bound of the model's own order, the graph before fusion with one buffer per value, and the patches
of its convolutions; with `--scratch TARGET` also what kernels of the target need beside the arena.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuvil_build import paths
from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import load_rules
from cuvil_build.kernel.group import Group
from cuvil_build.kernel.nest import Nest
from cuvil_build.kernel.routine import Routine
from cuvil_build.memory.arena import aligned_bytes
from cuvil_build.memory.bound import lower_bound
from cuvil_build.memory.liveness import assign_storage
from cuvil_build.memory.naive import Naive, measure_naive
from cuvil_build.memory.order import bodies
from cuvil_build.memory.plan import GraphPlan, arrange, plan_graph
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.ops.lowered_graph import LaunchItem, LoweredGraph, RegionItem
from cuvil_build.passes.assign_layouts import assign_layouts, order_of
from cuvil_build.target.load import load_target


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes at one set of sizes."""

    sizes: Mapping[str, int]
    arena: int
    bound: int
    source_bound: int
    """Of the order in the model."""
    naive: Naive
    in_place: int
    definitions: int
    seconds: float
    """To make the plan."""

    @property
    def ratio(self) -> float:
        return self.arena / max(1, self.bound)

    def saved(self, nbytes: int) -> float:
        """The share that the arena is smaller."""
        return 1 - self.arena / max(1, nbytes)


def measure(path: Path, sizes: Mapping[str, int]) -> tuple[Measured, GraphPlan]:
    """`sizes` replace the reference sizes of some dims."""
    model = import_onnx(path).model
    source = model.clone()
    rules = load_rules(sorted(paths.find_yaml("rules").values()))
    assign_layouts(model, fuse_graph(model, rules).inference)
    graph = lower_graph(model, infer_model(model, annotate=False), order_of, fast=True)
    start = time.perf_counter()
    plan = plan_graph(graph)
    seconds = time.perf_counter() - start
    at = {**plan.points[0], **{name: size for name, size in sizes.items() if name in plan.points[0]}}
    naive = measure_naive(source, infer_model(source, annotate=False), at)
    values = dict(at)
    for name, expr in plan.memory.definitions:
        values[name] = expr.evaluate(values)
    found = Measured(
        at,
        plan.memory.arena.evaluate(values),
        _bound(plan.graph, at),
        _bound(arrange(graph, {}), at),
        naive,
        len(plan.storage.in_place),
        len(plan.memory.definitions),
        seconds,
    )
    return found, plan


def _bound(graph: LoweredGraph, sizes: Mapping[str, int]) -> int:
    blocks = [b for b in assign_storage(graph).blocks if b.nbytes.terms]
    return lower_bound(blocks, aligned_bytes(blocks, sizes))


def scratch_bytes(plan: GraphPlan, target: str, sizes: Mapping[str, int]) -> int:
    """The most that one kernel needs of one thread."""
    machine = load_target(target, paths.search_path("targets"))
    most = 0
    for nest in _nests(plan.graph):
        kernel = emit_kernel(nest, machine)
        needed = kernel.spec.scratch.substitute({f"d{n}": dim for n, dim in enumerate(kernel.dims)})
        most = max(most, needed.evaluate({name: sizes.get(name, 1) for name in needed.symbols()}))
    return most


def _nests(graph: LoweredGraph) -> Iterator[Nest | Routine | Group]:
    for _, body in bodies(graph.body, ""):
        for item in body.items:
            for region in item.items if isinstance(item, LaunchItem) else (item,):
                if isinstance(region, RegionItem):
                    yield from region.region.nests


def _lines(name: str, found: Measured) -> Iterator[str]:
    sizes = ", ".join(f"{n} = {s}" for n, s in found.sizes.items())
    yield f"{name}{f' at {sizes}' if sizes else ''}"
    yield (
        f"  arena {found.arena:,}, bound {found.bound:,}, ratio {found.ratio:.4f}; "
        f"{found.in_place} results in place, {found.definitions} definitions, {found.seconds:.2f} s"
    )
    gain = 1 - found.bound / max(1, found.source_bound)
    yield f"  order: bound {found.source_bound:,} in the model's, {gain:.1%} gained"
    naive = found.naive
    yield f"  unfused: alive at once {naive.peak:,} ({found.saved(naive.peak):.1%} saved)"
    saved = found.saved(naive.first_fit)
    yield f"    first fit {naive.first_fit:,} ({saved:.1%} saved), no reuse {naive.every_value:,}"
    if naive.im2col:
        count, most = len(naive.im2col), max(naive.im2col)
        yield f"  patches of {count} convolutions: {sum(naive.im2col):,}, largest {most:,}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--size", action="append", default=[], metavar="DIM=N")
    parser.add_argument("--scratch", metavar="TARGET", default="")
    options = parser.parse_args(arguments)
    sizes = {name: int(size) for name, size in (text.split("=") for text in options.size)}
    for path in options.models:
        found, plan = measure(path, sizes)
        print("\n".join(_lines(path.stem if path.stem != "model" else path.parent.name, found)), flush=True)
        if options.scratch:
            nbytes = scratch_bytes(plan, options.scratch, found.sizes)
            print(f"  scratch of a thread on {options.scratch}: {nbytes:,}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
