"""Writes the C sources, the packed weights and the facts of a module."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cuvil_build import __version__
from cuvil_build.bundle.weights import WeightBlob, WeightsFile, write_weights
from cuvil_build.codegen.alike import source_alike
from cuvil_build.codegen.assemble import Assembled, ModuleNames, WeightBlock, WeightPool, assemble
from cuvil_build.codegen.c_names import c_identifier
from cuvil_build.codegen.checks import check_graph
from cuvil_build.codegen.kernels import EmittedKernel, Kernel, Tuned, emit_kernel
from cuvil_build.codegen.module import WEIGHTS_FILE, emit_module, exports, units
from cuvil_build.codegen.module_tables import Tables, calls_of, launches_of
from cuvil_build.codegen.plan import LocalSymbol, ModulePlan, TensorSpec
from cuvil_build.codegen.roofline import Memory
from cuvil_build.codegen.schedule_report import schedule_report
from cuvil_build.codegen.stack_bound import stack_bytes
from cuvil_build.errors import WeightsTooLarge
from cuvil_build.kernel.numbers import Numbers
from cuvil_build.memory.arena import plan_arena
from cuvil_build.memory.liveness import assign_storage
from cuvil_build.memory.report import from_json
from cuvil_build.ops.lowered_graph import LoweredGraph
from cuvil_build.steps.step import Job, Unit
from cuvil_build.steps.workers.lowering import lowered_graph
from cuvil_build.steps.workers.pick_schedules import read_picked
from cuvil_build.target.descriptor import Target
from cuvil_build.target.members import unit_name

MIB = 1 << 20
LARGEST_EMBEDDED = 16 * MIB
CHECKS = "checks"
"""Folder, and prefix of units, of the module that runs every kernel by itself."""


def run(job: Job) -> None:
    target = Target.model_validate(job.params["target"])
    members: list[dict[str, Any]] = list(job.params["members"])  # type: ignore[call-overload]
    name = c_identifier(str(job.params["model"]))
    plan = from_json(_read(job.inputs["plan"]), lowered_graph(job))
    graph = plan.graph
    pool = WeightPool()
    emit = _Emitter(target, read_picked(job.inputs.get("picked")))
    names = ModuleNames(name, target.name, __version__, _digest(job.inputs["graph"]), target.features)
    module = assemble(graph, plan.storage, plan.memory, emit, names, pool)
    regions = check_graph(graph)
    alone = regions.graph
    storage = assign_storage(alone)
    memory = plan_arena(storage.blocks, alone.reference_sizes())
    checks = assemble(alone, storage, memory, emit, ModuleNames(f"{name}_checks", *_rest(names)), pool)
    weights = write_weights(job.outputs["weights"], [_blob(w) for w in pool.blocks])
    folder = job.outputs["sources"]
    whole = _with(module, weights)
    if job.params["embed"]:
        whole = replace(whole, embedded=True)
        copy_to_embed(job.outputs["weights"], folder, str(job.params["model"]))
    rows = [
        *_write(folder, "", whole, target, emit.alike(members)),
        *_write(folder, CHECKS, _with(checks, weights), target, emit.alike(members)),
    ]
    _dump(folder / "units.json", [u.to_json() for u in _unique(rows)])
    _dump(folder / "module.json", _facts(whole, graph, members))
    parts = {"regions": regions.regions, "numbers": regions.numbers, "skipped": regions.skipped}
    _dump(folder / "checks.json", {**_facts(_with(checks, weights), alone, members), **parts})
    used = Memory(weights.nbytes, plan.memory.reference_arena)
    _dump(job.outputs["schedules"], schedule_report(graph, emit.found, target, used))
    job.log(f"{len(module.plan.kernels)} kernels, {weights.nbytes} bytes of weights")


class _Emitter:
    """Kernels of one target; remembers which nest became which."""

    def __init__(self, target: Target, tuned: Tuned) -> None:
        self._target = target
        self._tuned = tuned
        self.found: dict[int, EmittedKernel] = {}
        """By the identity of the nest; the graph keeps them all."""
        self._nests: dict[str, Kernel] = {}

    def __call__(self, nest: Kernel) -> EmittedKernel:
        if id(nest) not in self.found:
            self.found[id(nest)] = emit_kernel(nest, self._target, tuned=self._tuned)
            self._nests.setdefault(self.found[id(nest)].spec.symbol, nest)
        return self.found[id(nest)]

    def alike(self, members: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
        """By member and symbol: the text of kernels that have tiles of the member's own."""
        numbers = Numbers.from_target(self._target)
        by_symbol = {e.spec.symbol: e for e in self.found.values()}
        texts: dict[str, dict[str, str]] = {}
        for member in members:
            theirs = Numbers.from_target(Target.model_validate(member["machine"]))
            found = {s: source_alike(nest, by_symbol[s], numbers, theirs) for s, nest in self._nests.items()}
            texts[str(member["target"])] = {symbol: text for symbol, text in sorted(found.items()) if text}
        return texts


def copy_to_embed(weights: Path, folder: Path, model: str) -> None:
    """Beside the unit that takes the file in. Large weights belong in a file that is mapped: no compiler and
    no loader should read them."""
    nbytes = weights.stat().st_size
    if nbytes > LARGEST_EMBEDDED:
        raise WeightsTooLarge(
            f"the weights of '{model}' have {nbytes / MIB:.1f} MiB; up to "
            f"{LARGEST_EMBEDDED // MIB} MiB can be embedded",
            hint="'weights: file' of the target keeps them beside the library",
        )
    shutil.copyfile(weights, folder / WEIGHTS_FILE)


def _rest(names: ModuleNames) -> tuple[str, str, str, tuple[str, ...]]:
    return names.target, names.version, names.digest, names.features


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def _digest(graph: Path) -> str:
    return hashlib.sha256(graph.read_bytes()).hexdigest()


def _with(assembled: Assembled, file: WeightsFile) -> ModulePlan:
    return assembled.with_weights(file.offsets, file.nbytes, file.id, file.id_offset)


def _blob(block: WeightBlock) -> WeightBlob:
    return WeightBlob(
        block.name,
        block.dtype,
        block.shape,
        block.layout,
        block.nbytes,
        lambda: [block.data().view(np.uint8).data],
    )


def _write(
    folder: Path, place: str, plan: ModulePlan, target: Target, members: Mapping[str, Mapping[str, str]]
) -> list[Unit]:
    """Sources of one module; kernels and runtime stand once for both. Members compile all kernels again, some
    from texts of their own."""
    own = {f"{plan.name}.h", "cuvil_module.h", "module.c"}
    shared = {WEIGHTS_FILE: WEIGHTS_FILE}
    for path, text in emit_module(plan).items():
        kept = f"{place}/{path}" if place and path in own else path
        shared[path] = kept
        (folder / kept).parent.mkdir(parents=True, exist_ok=True)
        (folder / kept).write_text(text)
    rows = []
    for unit in units(plan, libc=target.runner == "wasm"):
        member = target.baseline if unit["baseline"] and target.baseline != target.name else ""
        name = f"{place}_{unit['name']}" if unit["name"] == "module" and place else unit["name"]
        headers = tuple(shared[h] for h in unit["headers"])
        row = Unit(name, shared[unit["path"]], headers, tuple(unit["flags"]), member)
        rows.append(row)
        if not unit["baseline"]:
            rows += [_of_member(folder, row, other, texts.get(name, "")) for other, texts in members.items()]
    return rows


def _of_member(folder: Path, unit: Unit, member: str, text: str) -> Unit:
    path = unit.path
    if text:
        path = f"{member}/{unit.path}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return replace(unit, name=unit_name(unit.name, member), path=path, target=member)


def _unique(rows: Sequence[Unit]) -> Iterable[Unit]:
    return sorted({u.name: u for u in rows}.values(), key=lambda u: u.name)


def _facts(plan: ModulePlan, graph: LoweredGraph, members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    bounds = {d.name: [d.spec.minimum, d.spec.maximum] for d in graph.dims.values()}
    bounds |= {symbol.name: _local_bounds(symbol) for symbol in plan.locals}
    tables = Tables(plan)
    scratch = tables.upper(tables.scratch)
    return {
        "model": plan.name,
        "digest": plan.digest,
        "features": list(plan.features),
        "members": [{key: m[key] for key in ("target", "features")} for m in members],
        "exports": exports(plan),
        "inputs": [_tensor(t, bounds) for t in plan.inputs],
        "outputs": [_tensor(t, bounds) for t in plan.outputs],
        "arena_bytes": plan.arena_max,
        "heaps": plan.heaps,
        "scratch_bytes": None if scratch < 0 else scratch,
        "stack_bytes": stack_bytes(plan),
        "weights_bytes": plan.weights_nbytes,
        "embedded": plan.embedded,
        "kernels": [k.symbol for k in plan.kernels],
        "calls": _calls(plan),
        "order": _order(plan),
        "launches": sum(1 for _ in launches_of(plan.body)),
    }


def _local_bounds(symbol: LocalSymbol) -> list[int | None]:
    """Of a dim that the run computes: as far as numbers tell."""
    low, limit = symbol.low, symbol.limit
    least = max(low.value, 0) if low is not None and low.is_static else 0
    return [least, limit.value if limit is not None and limit.is_static else None]


def _calls(plan: ModulePlan) -> dict[str, list[str]]:
    """Kernel symbol -> what the calls of it compute."""
    found: dict[str, list[str]] = {}
    for call in calls_of(plan.body):
        found.setdefault(plan.kernels[call.kernel].symbol, []).append(call.comment)
    return {symbol: sorted(comments) for symbol, comments in sorted(found.items())}


def _order(plan: ModulePlan) -> list[dict[str, object]]:
    """Every call, as the module's table has them."""
    return [
        {"kernel": plan.kernels[call.kernel].symbol, "nodes": call.comment, "launch": number}
        for number, calls in enumerate(launches_of(plan.body))
        for call in calls
    ]


def _tensor(tensor: TensorSpec, bounds: dict[str, list[int | None]]) -> dict[str, Any]:
    used = sorted({s for d in tensor.shape for s in d.symbols()} & bounds.keys())
    return {
        "name": tensor.name,
        "identifier": tensor.identifier,
        "dtype": tensor.dtype.name,
        "shape": [d.value if d.is_static else str(d) for d in tensor.shape],
        "bounds": {s: bounds[s] for s in used},
    }


def _dump(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
