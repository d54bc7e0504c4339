"""`cuvil export`: a graph of the build as a plain, self-contained ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import onnx_ir as ir
import typer

from cuvil_build.cli import console, options, selection
from cuvil_build.cli.model_files import built_output
from cuvil_build.cuir.weights import load_graph
from cuvil_build.errors import NotYet
from cuvil_build.ops.infer import infer_model

HELP = "Write the graph of a step as one ONNX file for other tools."

MAX_NBYTES = (1 << 31) - (1 << 20)


def command(
    step: Annotated[
        str, typer.Argument(metavar="STEP", help="As in fuse:detector/fp32, or a model: its imported graph.")
    ],
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The ONNX file to write.")],
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
) -> None:
    project = selection.load(directory, file, profile, sets)
    model = load_graph(built_output(project, step, "graph"), project.store())
    infer_model(model)
    nbytes = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    if nbytes > MAX_NBYTES:
        raise NotYet(f"a graph with {nbytes} bytes of weights does not fit into one ONNX file")
    content = ir.to_proto(model).SerializeToString(deterministic=True)
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(content)
    partial.replace(path)
    console.print_line(f"{path}: {len(content)} bytes, {len(model.graph)} nodes")
