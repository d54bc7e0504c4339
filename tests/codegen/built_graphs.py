"""Small models as text, compiled to modules: the whole way from a graph to C without a project."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import ModelProto, parser

from cuvil_build.bundle.javascript import render_javascript
from cuvil_build.bundle.manifest import TensorEntry
from cuvil_build.bundle.weights import WeightBlob, WeightsFile, write_weights
from cuvil_build.codegen.assemble import ModuleNames, WeightBlock, WeightPool, assemble
from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.codegen.module import exports, units
from cuvil_build.codegen.plan import ModulePlan, TensorSpec
from cuvil_build.cuir.dims import DimSpec, write_limits
from cuvil_build.memory.arena import plan_arena
from cuvil_build.memory.launches import group_launches
from cuvil_build.memory.liveness import assign_storage
from cuvil_build.memory.plan import GraphPlan, plan_graph
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.ops.lowered_graph import LoweredGraph
from cuvil_build.reference import run_reference
from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain.command import (
    archive_command,
    compile_command,
    is_wasm,
    link_command,
    run_command,
)
from cuvil_build.toolchain.find import find_toolchain
from cuvil_build.toolchain.runner import run_module, runners_of, why_not_executed
from tests.codegen import module_plans as plans
from tests.codegen.module_plans import Api, Built, dl
from tests.free_dims import declare_dims
from tests.kernel.harness import WIDE

HEAD = '<ir_version: 10, opset_import: ["" : 23, "ai.cuvil.fused" : 1]>'
Arrays = Mapping[str, np.ndarray]


def lowered(text: str, largest: Mapping[str, int] | None = None) -> tuple[ModelProto, LoweredGraph]:
    """A model in ONNX's textual syntax; `largest` bounds some of its dims, also those that data decides."""
    proto = parser.parse_model(HEAD + text)
    model = ir.from_proto(proto)
    dims = declare_dims(model, lambda name: DimSpec(0, (largest or {}).get(name)))
    write_limits(model, {name: most for name, most in (largest or {}).items() if name not in dims})
    return proto, lower_graph(model, infer_model(model), lambda value, rank: tuple(range(rank)))


def planned(
    graph: LoweredGraph,
    weights: Path,
    name: str = "small",
    machine: Target | None = None,
    whole: GraphPlan | None = None,
) -> ModulePlan:
    """The plan of a graph's module; its weights go to a file. `whole` is a memory plan as a build makes it,
    with an order of its own; else items run as they stand, and offsets come from one set of sizes."""
    if whole is None:
        storage = assign_storage(graph)
        memory = plan_arena(storage.blocks, graph.reference_sizes())
    else:
        graph, storage, memory = whole.graph, whole.storage, whole.memory
    pool = WeightPool()
    names = ModuleNames(name, "test", "0", "00" * 32)
    emit = partial(emit_kernel, target=machine, numbers=None if machine else WIDE)
    module = assemble(graph, storage, memory, emit, names, pool)
    file: WeightsFile = write_weights(weights, [_blob(block) for block in pool.blocks])
    return module.with_weights(file.offsets, file.nbytes, file.id, file.id_offset)


def _blob(block: WeightBlock) -> WeightBlob:
    return WeightBlob(
        block.name,
        block.dtype,
        block.shape,
        block.layout,
        block.nbytes,
        lambda: [block.data().view(np.uint8).data],
    )


class SmallModule:
    """A compiled model beside its reference."""

    def __init__(
        self,
        text: str,
        folder: Path,
        largest: Mapping[str, int] | None = None,
        grouped: bool = False,
        whole: bool = False,
    ) -> None:
        self.proto, self.graph = lowered(text, largest)
        if grouped:
            self.graph = group_launches(self.graph)
        folder.mkdir(parents=True, exist_ok=True)
        self.whole = plan_graph(self.graph) if whole else None
        plan = planned(self.graph, folder / "packed", whole=self.whole)
        flags = (*plans.STRICT, *plans.FREESTANDING, "-O1", "-mavx2", "-mfma")
        built: Built = plans.build(plan, folder, flags=flags)
        (folder / "packed").replace(folder / "weights.safetensors")
        self.plan = plan
        self.api = Api(built)
        self.context = self.api.opened()

    def run(self, feeds: Arrays) -> list[np.ndarray]:
        inputs = [np.ascontiguousarray(feeds[name]).reshape(feeds[name].shape) for name in self.graph.inputs]
        return self.api.ran(self.context, [dl(a) for a in inputs])

    def wanted(self, feeds: Arrays) -> list[np.ndarray]:
        return [np.asarray(v) for v in run_reference(self.proto, dict(feeds)).outputs.values()]

    def check(self, *cases: Arrays) -> None:
        """One after the other in the same context, then backwards: what a run leaves must not matter."""
        for feeds in (*cases, *reversed(cases)):
            compare(self.run(feeds), self.wanted(feeds))


def compare(have: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    for one, other in zip(have, want, strict=True):
        if one.size == 0 == other.size:
            continue  # the reference does not know the dims of what no iteration made
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def run_everywhere(
    folder: Path, machine: Target, cases: Sequence[Arrays]
) -> Iterator[list[dict[str, np.ndarray]]]:
    """What a module folder gives, by each of the machine's runners; a desk without one skips, CI must not."""
    for runner in runners_of(machine):
        reason = why_not_executed(machine, runner)
        if reason and not os.environ.get("CI"):
            pytest.skip(reason)
        yield run_module(folder, machine, cases, runner=runner)


def build_for(machine: Target, text: str, folder: Path) -> ModelProto:
    """A module folder for a target, by the build's own commands, and the model."""
    proto, graph = lowered(text)
    sources = folder / "src"
    sources.mkdir(parents=True)
    plan = planned(graph, folder / "weights.safetensors", machine=machine)
    plans.write_sources(plan, sources)
    toolchain = find_toolchain("zig")
    objects = []
    for unit in units(plan, libc=is_wasm(machine)):
        output = Path("obj") / f"{unit['name']}.o"
        folders = sorted({Path(header).parent for header in unit["headers"]})
        source = Path(unit["path"])
        run_command(compile_command(toolchain, machine, source, output, folders, unit["flags"], cwd=sources))
        objects.append(sources / output)
    library = f"module{machine.library_suffix}"
    run_command(link_command(toolchain, machine, objects, folder / library, exports(plan)))
    run_command(archive_command(toolchain, objects, folder / "module.a"))
    (folder / f"{plan.name}.h").write_text((sources / f"{plan.name}.h").read_text())
    inputs, outputs = (
        tuple(TensorEntry(t.name, t.identifier, t.dtype.name, _shape(t)) for t in tensors)
        for tensors in (plan.inputs, plan.outputs)
    )
    loader = render_javascript(
        model=plan.name,
        inputs=inputs,
        outputs=outputs,
        version="0",
        library=library,
        weights="weights.safetensors",
    )
    (folder / f"{plan.name}.js").write_text(loader.module)
    manifest = plans.manifest_of(plan, library) | {"triple": machine.triple}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return proto


def _shape(tensor: TensorSpec) -> tuple[int | str, ...]:
    return tuple(d.value if d.is_static else str(d) for d in tensor.shape)
