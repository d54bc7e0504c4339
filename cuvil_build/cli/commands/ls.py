"""`cuvil ls`: the variants of a project."""

from __future__ import annotations

import os

from cuvil_build.cli import console, options
from cuvil_build.config.load import load_project
from cuvil_build.config.matrix import variants

HELP = "List the variants of the project."


def command(
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    loaded = load_project(
        options.config_file(directory, file), profile=profile, sets=sets or (), environ=os.environ
    )
    found = variants(loaded.project)
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
