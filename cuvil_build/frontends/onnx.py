"""ONNX file -> CU-IR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from cuvil_build.cuir.dims import DimSpec, FreeDim, read_dims
from cuvil_build.cuir.dtypes import DType
from cuvil_build.cuir.int_expr import Bounds, IntExpr
from cuvil_build.cuir.locations import location_of
from cuvil_build.cuir.opset import OPSET
from cuvil_build.cuir.traverse import graphs_within
from cuvil_build.cuir.types import dtype_of, ir_dtype, shape_of
from cuvil_build.errors import (
    CuvilError,
    InvalidModel,
    Loc,
    ManyErrors,
    MissingFile,
    ShapeMismatch,
    UnsupportedOperator,
    nearest,
)
from cuvil_build.frontends.onnx_dims import require_decided, settle_dims
from cuvil_build.frontends.onnx_file import Declared, read_model
from cuvil_build.frontends.onnx_lift import lift
from cuvil_build.frontends.onnx_outputs import own_outputs
from cuvil_build.ops import catalog
from cuvil_build.ops.infer import UndecidedRank, infer_model, raise_all, unsupported_operator
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.support import unsupported_nodes
from cuvil_build.passes import containers, eliminate_dead
from cuvil_build.passes.expand_operators import Expander, is_expandable
from cuvil_build.passes.graph_pass import Rewrite
from cuvil_build.passes.pipeline import IMPORT, Check, PipelineResult, run_passes

CONTROL_FLOW = ("If", "Loop")
"""Operators that the inference driver and the code generator know by themselves."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or an output of the model."""

    name: str
    dtype: DType
    shape: tuple[IntExpr, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Imported:
    model: ir.Model
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    dims: Mapping[str, FreeDim]
    inference: Inference
    rewrites: tuple[tuple[str, Rewrite], ...]
    """What the passes did, with the name of each pass."""
    opset: int
    """Of the file."""
    notes: tuple[str, ...] = ()
    """What is not as the file says it."""

    def report(self) -> dict[str, object]:
        """For people: what came in and what became of it."""
        nodes = [n for graph in graphs_within(self.model.graph) for n in graph]
        return {
            "opset": {"file": self.opset, "graph": self.model.opset_imports.get("", OPSET)},
            "inputs": [str(t) for t in self.inputs],
            "outputs": [str(t) for t in self.outputs],
            "dims": {
                name: {"min": d.spec.minimum, "max": d.spec.maximum, "file": d.original}
                for name, d in sorted(self.dims.items())
            },
            "decided by data": {
                name: {"min": low, "max": high}
                for name, (low, high) in sorted(self.inference.decided_dims().items())
            },
            "operators": dict(sorted(Counter(n.op_type for n in nodes).items())),
            "notes": list(self.notes),
            "rewrites": dict(sorted(Counter(name for name, _ in self.rewrites).items())),
            "guards": [
                f"{node.name}: {guard}" for node in nodes for guard in self.inference.guards.get(node, ())
            ],
        }


@dataclass(frozen=True, slots=True)
class Read:
    """A model before any pass."""

    model: ir.Model
    opset: int
    """Of the file."""
    declared: Mapping[str, Declared] = field(default_factory=dict)
    """What the file says of the outputs."""
    notes: tuple[str, ...] = ()


def import_onnx(
    path: Path,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    outputs: Sequence[str] | None = None,
    file_label: str = "",
    check: Check | None = None,
    dump: Path | None = None,
) -> Imported:
    """Reads, lifts and specialises a model. `file_label` is what locations and errors call the file.

    `check` sees the graph before and after each pass, `dump` is where a graph that breaks the rules is left.
    """
    label = file_label or path.name
    read = read_onnx(path, dims=dims, outputs=outputs, file_label=label)
    raise_all(unsupported_operators(read.model))
    try:
        result = run_passes(read.model, IMPORT, check=check, dump=dump)
        require_decided(result.model, result.inference.decided_dims())
        return _imported(result, read)
    except CuvilError as error:
        error.at(Loc(label))
        raise


def examine_onnx(
    path: Path,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    outputs: Sequence[str] | None = None,
    file_label: str = "",
) -> tuple[Imported | None, list[CuvilError]]:
    """Imports, and finds all that stands in the way of a build instead of the first thing."""
    label = file_label or path.name
    try:
        read = read_onnx(path, dims=dims, outputs=outputs, file_label=label)
    except ManyErrors as many:
        return None, many.errors
    except CuvilError as error:
        return None, [error]
    errors = unsupported_operators(read.model)
    try:
        expander = Expander(read.model)
        found = infer_model(read.model, annotate=False, keep_going=True, rewrite=expander).errors
        errors += [e for e in found if not isinstance(e, UnsupportedOperator)]
    except UndecidedRank:
        # Which branch fits shows only when everything else has types: the passes below tell.
        pass
    if errors:
        return None, errors
    try:
        result = run_passes(read.model, IMPORT)
        require_decided(result.model, result.inference.decided_dims())
        imported = _imported(result, read)
    except CuvilError as error:
        return None, [error.at(Loc(label))]
    return imported, unsupported_nodes(imported.model, imported.inference)


def read_onnx(
    path: Path,
    *,
    dims: Mapping[str, DimSpec] | None = None,
    outputs: Sequence[str] | None = None,
    file_label: str = "",
) -> Read:
    """The model lifted and with named dims, before any pass."""
    label = file_label or path.name
    if not path.is_file():
        raise MissingFile(f"there is no model '{label}'")
    source = read_model(path, label)
    model = lift(source, label)
    try:
        _prune(model, outputs)
        notes = own_outputs(model, label, source.opset)
        eliminate_dead.run(model)
        settle_dims(model, dims or {})
    except CuvilError as error:
        error.at(Loc(label))
        raise
    _forget_types(model)
    model.producer_name, model.producer_version, model.doc_string = "cuvil", None, None
    model.graph.name = "main"
    return Read(model, source.opset, source.declared, (*source.notes, *notes))


def unsupported_operators(model: ir.Model) -> list[CuvilError]:
    """One error for each node whose operator nobody knows."""
    return [
        unsupported_operator(node.domain, node.op_type).at(location_of(node))
        for graph in graphs_within(model.graph)
        for node in graph
        if catalog.find(node.domain, node.op_type) is None
        and (node.domain != "" or node.op_type not in {*CONTROL_FLOW, *containers.OPERATORS})
        and not is_expandable(node, model)
    ]


def _prune(model: ir.Model, outputs: Sequence[str] | None) -> None:
    if outputs is None:
        return
    by_name = {str(v.name): v for v in model.graph.outputs}
    for name in outputs:
        if name not in by_name:
            raise InvalidModel(f"outputs: the model has no output '{name}'", hint=nearest(name, by_name))
    model.graph.outputs[:] = [by_name[name] for name in dict.fromkeys(outputs)]


def _forget_types(model: ir.Model) -> None:
    """What the file says of inner values is not trusted: inference finds it again."""
    for graph in graphs_within(model.graph):
        for node in graph:
            for value in node.outputs:
                value.type = value.shape = None


def _imported(result: PipelineResult, read: Read) -> Imported:
    graph = result.model.graph
    outputs = tuple(_info(v) for v in graph.outputs)
    disagreeing = [note for o in outputs for note in compare_declared(o, read, result.inference.bounds)]
    return Imported(
        result.model,
        tuple(_info(v) for v in graph.inputs),
        outputs,
        read_dims(result.model),
        result.inference,
        result.rewrites,
        read.opset,
        (*read.notes, *disagreeing),
    )


def compare_declared(output: TensorInfo, read: Read, bounds: Mapping[str, Bounds]) -> Iterator[str]:
    """Notes on what the file says of an output and import does not find. Raises where both are numbers.

    A rank is only noted: exporters write shapes of other stages, whose sizes say nothing of this one's.
    """
    declared = read.declared.get(output.name)
    if declared is None:
        return
    what = f"output '{output.name}'"
    if declared.dtype not in (0, ir_dtype(output.dtype).value):
        known = declared.dtype in list(ir.DataType)
        name = ir.DataType(declared.dtype).name.lower() if known else f"dtype {declared.dtype}"
        raise InvalidModel(f"{what} is declared as {name}, computed as {output.dtype}")
    if declared.shape is None:
        return
    if len(declared.shape) != len(output.shape):
        yield f"{what} is declared with {len(declared.shape)} dims; it has {len(output.shape)}"
        return
    for axis, (said, found) in enumerate(zip(declared.shape, output.shape)):
        if said is None or (found.is_static and found.value == said):
            continue
        low, high = found.bounds(bounds) or (0, None)
        if said < low or (high is not None and said > high):
            raise ShapeMismatch(
                f"{what}: dim {axis} is declared as {said}, computed as {found}",
                hint="export the model again, or take the shape out of the output",
            )
        yield f"{what}: dim {axis} is declared as {said}; it is {found}"


def _info(value: ir.Value) -> TensorInfo:
    return TensorInfo(str(value.name), dtype_of(value.dtype, f"'{value.name}'"), shape_of(value))
