"""`cuvil inspect`: what is in a model file, or in a graph of the build."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import onnx_ir as ir
import typer

from cuvil_build.cli import console, options, selection
from cuvil_build.cli.model_files import built_output
from cuvil_build.cuir.dims import read_dims
from cuvil_build.cuir.traverse import all_nodes
from cuvil_build.cuir.types import dtype_of, shape_of
from cuvil_build.cuir.weights import load_graph
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference

HELP = "Show inputs, outputs, dims, operators and guards of a model or a step's graph."


def command(
    what: Annotated[
        str, typer.Argument(metavar="FILE|STEP", help="An .onnx file, a model of the config, or a step's id.")
    ],
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    if what.endswith(".onnx"):
        imported = import_onnx(Path(what), file_label=what)
        model, inference = imported.model, imported.inference
    else:
        project = selection.load(directory, file, profile, sets)
        model = load_graph(built_output(project, what, "graph"), project.store())
        inference = infer_model(model)
    summary = summarize(model, inference)
    if format is options.OutputFormat.json:
        console.emit_json(summary)
    else:
        _print(summary)


def summarize(model: ir.Model, inference: Inference) -> dict[str, dict[str, object]]:
    """Sections of name and what is said of it."""
    weights = [v.const_value for v in model.graph.initializers.values() if v.const_value is not None]
    nodes = list(all_nodes(model))
    return {
        "inputs": {str(v.name): _type(v) for v in model.graph.inputs},
        "outputs": {str(v.name): _type(v) for v in model.graph.outputs},
        "dims": {
            name: f"{d.spec.minimum}..{'' if d.spec.maximum is None else d.spec.maximum}"
            + (f", in the file '{d.original}'" if d.original and d.original != name else "")
            for name, d in sorted(read_dims(model).items())
        },
        "graph": {
            "opset": model.opset_imports.get("", 0),
            "nodes": len(nodes),
            "fused regions": len(model.functions),
            "weights": len(weights),
            "weight bytes": sum(t.nbytes for t in weights),
        },
        "operators": dict(sorted(Counter(_operator(n) for n in nodes).items())),
        "guards": {str(node.name): "; ".join(map(str, guards)) for node, guards in inference.guards.items()},
    }


def _type(value: ir.Value) -> str:
    dtype = dtype_of(value.dtype, f"'{value.name}'")
    return f"{dtype}[{', '.join(map(str, shape_of(value)))}]"


def _operator(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _print(summary: dict[str, dict[str, object]]) -> None:
    for title, rows in summary.items():
        if not rows:
            continue
        console.print_line(f"{title}:")
        width = max(map(len, rows))
        for name, text in rows.items():
            console.print_line(f"  {name.ljust(width)}  {text}")
