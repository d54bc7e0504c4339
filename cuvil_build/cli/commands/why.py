"""`cuvil why`: why a step ran, or did not, in the last build."""

from __future__ import annotations

from typing import Annotated

import typer

from cuvil_build.cli import console, options, selection
from cuvil_build.execute.history import Why, explain

HELP = "Show what made a step run: the differences to an earlier build, field by field."

_STATUS = {
    "ok": "ran",
    "failed": "ran and failed",
    "reused": "was taken from the store",
    "kept": "was up to date",
}


def command(
    step: Annotated[str, typer.Argument(metavar="STEP", help="As in codegen:detector/fp32/x64.")],
    against: Annotated[
        int | None, typer.Option("--against", metavar="BUILD", help="Number of the build to compare with.")
    ] = None,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    project = selection.load(directory, file, profile, sets)
    found = explain(project.layout, step, against)
    if format is options.OutputFormat.json:
        console.emit_json(
            {
                "step": found.step,
                "build": found.build,
                "against": found.against,
                "status": found.status,
                "changes": [change.to_json() for change in found.changes],
            }
        )
        return
    console.print_line(f"{found.step} {_STATUS.get(found.status, found.status)} in build {found.build}")
    console.print_line(_compared(found))
    for change in found.changes:
        console.print_line(f"  {change}")


def _compared(found: Why) -> str:
    if found.against is None:
        return "no earlier build that is kept has this step"
    if found.changes:
        return f"against build {found.against}:"
    return f"its ingredients are those of build {found.against}"
