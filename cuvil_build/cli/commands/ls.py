"""`cuvil ls`: the variants of a project."""

from __future__ import annotations

from typing import Annotated

import typer

from cuvil_build.cli import console, options, selection

HELP = "List the variants of the project."


def command(
    selectors: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SELECTOR]...",
            help="As in detector, model:detector,target:web, tag:release or state:modified.",
        ),
    ] = None,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    found = selection.load(directory, file, profile, sets).select(selectors or ())
    if format is options.OutputFormat.json:
        console.emit_json(
            [
                {
                    "id": v.id,
                    "model": v.model,
                    "precision": v.precision,
                    "target": v.target,
                    "target_id": v.target_id,
                    "tags": list(v.tags),
                }
                for v in found
            ]
        )
        return
    console.print_table(("variant", "target", "tags"), [(v.id, v.target_id, " ".join(v.tags)) for v in found])
