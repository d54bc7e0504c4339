"""`cuvil ls`: the variants of a project."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Annotated

import typer

from cuvil_build.cli import console, options
from cuvil_build.config.load import load_project
from cuvil_build.config.matrix import variants
from cuvil_build.errors import NotYet
from cuvil_build.plan.selectors import select_variants

HELP = "List the variants of the project."


def command(
    selectors: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SELECTOR]...", help="As in detector, model:detector,target:web or tag:release."
        ),
    ] = None,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    loaded = load_project(
        options.config_file(directory, file), profile=profile, sets=sets or (), environ=os.environ
    )
    found = select_variants(selectors or (), variants(loaded.project), _modified)
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


def _modified() -> Collection[str]:
    raise NotYet("'ls' does not know what is modified", hint="'cuvil plan state:modified' does")
