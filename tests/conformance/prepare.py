"""One case through the pipeline, in this process: import, fusion, lowering, memory plan, C sources."""

from __future__ import annotations

import json
import os
import pickle
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from cuvil_build import __abi__, __version__
from cuvil_build.bundle.manifest import FORMAT
from cuvil_build.bundle.weights import write_weights
from cuvil_build.codegen.assemble import ModuleNames, WeightPool, assemble
from cuvil_build.codegen.kernels import emit_kernel
from cuvil_build.codegen.module import emit_module, units
from cuvil_build.cuir.dims import DimSpec
from cuvil_build.errors import (
    CuvilError,
    NotYet,
    UnsupportedAttribute,
    UnsupportedDtype,
    UnsupportedOperator,
)
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import Rule, load_rules
from cuvil_build.memory.plan import plan_graph
from cuvil_build.ops import catalog
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.passes.assign_layouts import assign_layouts, order_of
from cuvil_build.paths import find_yaml, shipped
from cuvil_build.steps.workers.codegen import _blob, _facts, _with
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target
from tests.conformance.cases import Case, DataSet

RUNTIME, KERNELS = "runtime", "kernels"
"""Folders of sources that all modules share."""
LARGEST_BOUND = 4096
"""Elements of an input that only shapes others: more are data."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where sources go, and what for."""

    folder: Path
    target: str = "x86_64-avx2"


def prepare(case: Case, place: Place) -> dict[str, Any]:
    """Sources in the place's folder; as JSON: how it went, and the compile units of the module."""
    model = case.model()
    data = case.data_sets(model)
    try:
        return _attempt(case, place, model, data, [])
    except Exception as error:
        first = _failure(error)
    for bound in _choices(model, data):
        try:
            return _attempt(case, place, model, data, bound)
        except Exception:
            continue
    return first


def _failure(error: Exception) -> dict[str, Any]:
    if isinstance(error, CuvilError):
        shown = error.diagnostics()[0]
        kinds = {type(e) for e in getattr(error, "errors", [error])}
        status = "fail"
        if all(issubclass(k, (UnsupportedOperator, UnsupportedAttribute, UnsupportedDtype)) for k in kinds):
            status = "unsupported"
        elif all(issubclass(k, (NotYet, UnsupportedOperator)) for k in kinds):
            status = "not-yet"
        return {"status": status, "error": str(error), "message": f"{shown.name}: {shown.message}"}
    text = "".join(traceback.format_exception(error, limit=-6))
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = f"{type(error).__name__}: {error} ({Path(frame.filename).name}, {frame.name})"
    return {"status": "crash", "error": text, "message": line}


def _attempt(
    case: Case, place: Place, model: ModelProto, data: Sequence[DataSet], bound: Sequence[str]
) -> dict[str, Any]:
    folder = place.folder / case.identifier
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    onnx.save(_bind(model, data, bound), path)
    imported = import_onnx(path, dims=_empty_dims(model, data), file_label=case.name)
    inference = fuse_graph(imported.model, _rules()).inference
    assign_layouts(imported.model, inference)
    planned = plan_graph(lower_graph(imported.model, infer_model(imported.model, annotate=False), order_of))
    graph = planned.graph
    target = _target(place.target)
    names = ModuleNames(case.identifier, target.name, __version__, "0" * 64, target.features)
    pool = WeightPool()
    emit = partial(emit_kernel, target=target)
    assembled = assemble(graph, planned.storage, planned.memory, emit, names, pool)
    plan = _with(assembled, write_weights(folder / "weights.safetensors", [_blob(w) for w in pool.blocks]))
    kept = {
        path: _source_path(path, case.identifier, place.folder, text)
        for path, text in emit_module(plan).items()
    }
    facts = _facts(plan, graph, ())
    manifest = {
        "format": FORMAT,
        "abi": __abi__,
        "model": plan.name,
        "target": target.name,
        "triple": target.triple,
        "features": facts["features"],
        "library": f"module{target.library_suffix}",
        "weights": "weights.safetensors",
        "inputs": facts["inputs"],
        "outputs": facts["outputs"],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    _write_data(folder / "data.pickle", case, model, data, bound)
    rows = [
        {"source": kept[u["path"]], "headers": [kept[h] for h in u["headers"]], "flags": u["flags"]}
        for u in units(plan)
    ]
    return {"status": "prepared", "units": rows, "bound": list(bound)}


@cache
def _rules() -> list[Rule]:
    return load_rules(find_yaml("rules").values())


@cache
def _target(name: str) -> Target:
    return load_target(name, [shipped("targets")])


def warm() -> None:
    """Load what every case needs, before forks share it."""
    _rules()
    catalog.operators()


def _source_path(path: str, identifier: str, folder: Path, text: str) -> str:
    """Kernels and runtime stand once for all modules; a module's own source has its name, so that many can be
    compiled by one call."""
    if not path.startswith((f"{RUNTIME}/", f"{KERNELS}/")):
        path = f"{identifier}/{path}" if path != "module.c" else f"{identifier}/{identifier}.c"
    whole = folder / path
    if whole.parent.name == identifier or not whole.exists():
        whole.parent.mkdir(parents=True, exist_ok=True)
        unfinished = whole.with_name(f"{whole.name}.{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(whole)
    return path


def _write_data(
    path: Path, case: Case, model: ModelProto, data: Sequence[DataSet], bound: Sequence[str]
) -> None:
    names = _free_inputs(model)
    sets = [([v for n, v in zip(names, ins) if n not in bound], outs) for ins, outs in data]
    path.write_bytes(pickle.dumps({"sets": sets, "rtol": case.rtol, "atol": case.atol}))


def _free_inputs(model: ModelProto) -> list[str]:
    stored = {t.name for t in model.graph.initializer}
    return [v.name for v in model.graph.input if v.name not in stored]


def _empty_dims(model: ModelProto, data: Sequence[DataSet]) -> dict[str, DimSpec]:
    """Free dims that are 0 in the data: only a project that says so has a minimum below 1."""
    values = {v.name: v for v in model.graph.input}
    return {
        dim.dim_param: DimSpec(0, None)
        for inputs, _ in data
        for name, array in zip(_free_inputs(model), inputs)
        for dim, size in zip(values[name].type.tensor_type.shape.dim, np.shape(array))
        if dim.dim_param and size == 0
    }


# Inputs that shape others ----------------------------------------------------------------------------------


def _choices(model: ModelProto, data: Sequence[DataSet]) -> Iterator[list[str]]:
    """Sets of inputs that could be constants instead: those that operators take for shapes; then all small
    integer ones beside the first input."""
    fixed = {
        name: values[0]
        for name, values in zip(_free_inputs(model), zip(*(ins for ins, _ in data)))
        if isinstance(values[0], np.ndarray) and all(np.array_equal(v, values[0]) for v in values)
    }
    shaping = [n for n in _shaping(model.graph) if n in fixed]
    if shaping:
        yield shaping
    _, *rest = _free_inputs(model) or [""]
    small = [n for n in rest if n in fixed and fixed[n].dtype.kind in "iu" and fixed[n].size <= LARGEST_BOUND]
    both = [*shaping, *(n for n in small if n not in shaping)]
    if both and both != shaping:
        yield both


def _shaping(graph: GraphProto) -> list[str]:
    found: dict[str, None] = {}
    for node in _nodes(graph):
        operator = catalog.find(node.domain, node.op_type)
        for index in operator.shape_operands if operator is not None else ():
            if index < len(node.input) and node.input[index]:
                found.setdefault(node.input[index])
    inputs = [v.name for v in graph.input]
    return [name for name in inputs if name in found]


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _bind(model: ModelProto, data: Sequence[DataSet], bound: Sequence[str]) -> ModelProto:
    if not bound:
        return model
    values = dict(zip(_free_inputs(model), data[0][0]))
    changed = ModelProto()
    changed.CopyFrom(model)
    kept = [v for v in model.graph.input if v.name not in bound]
    del changed.graph.input[:]
    changed.graph.input.extend(kept)
    changed.graph.initializer.extend(onnx.numpy_helper.from_array(values[n], n) for n in bound)
    return changed
