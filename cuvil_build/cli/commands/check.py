"""`cuvil check`: whether the models can be built, before anything long runs."""

from __future__ import annotations

from typing import Annotated

import typer

from cuvil_build.cli import console, options, selection
from cuvil_build.cli.model_files import ModelFile, model_files
from cuvil_build.errors import CuvilError, Diagnostic
from cuvil_build.frontends.onnx import Imported, examine_onnx

HELP = "Import the models and report all that a build would fail on."


def command(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help="Models of the config; all unless given.")
    ] = None,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> int:
    project = selection.load(directory, file, profile, sets)
    rows = []
    for model in model_files(project, models or []):
        imported, errors = examine_onnx(
            model.path, dims=model.dims, outputs=model.outputs, file_label=model.label
        )
        rows.append((model, imported, errors))
    if format is options.OutputFormat.json:
        console.emit_json([_as_json(*row) for row in rows])
    else:
        for row in rows:
            _print(*row)
    return max((error.exit_code for _, _, errors in rows for error in errors), default=0)


def _print(model: ModelFile, imported: Imported | None, errors: list[CuvilError]) -> None:
    targets = ", ".join(model.targets) or "no target"
    if errors:
        console.print_line(f"{model.name}: {len(errors)} problem{'s'[: len(errors) > 1]} for {targets}")
        for error in errors:
            console.print_error(error)
        return
    assert imported is not None
    nodes = sum(len(list(g)) for g in (imported.model.graph, *imported.model.graph.subgraphs()))
    console.print_line(f"{model.name}: ok for {targets}; opset {imported.opset}, {nodes} nodes")
    for tensor in imported.inputs:
        console.print_line(f"  in   {tensor}")
    for tensor in imported.outputs:
        console.print_line(f"  out  {tensor}")
    for note in imported.notes:
        console.print_line(f"  note {note}")


def _as_json(model: ModelFile, imported: Imported | None, errors: list[CuvilError]) -> dict[str, object]:
    found = [d for error in errors for d in error.diagnostics()]
    return {
        "model": model.name,
        "targets": list(model.targets),
        "ok": not errors,
        "problems": [_diagnostic(d) for d in found],
        "report": imported.report() if imported is not None else None,
    }


def _diagnostic(found: Diagnostic) -> dict[str, object]:
    return {
        "error": found.name,
        "message": found.message,
        "file": found.loc.file,
        "node": found.loc.node,
        "hint": found.hint,
    }
