"""`cuvil clean`: remove what builds left behind."""

from __future__ import annotations

from typing import Annotated

import typer

from cuvil_build.cli import console, options, selection
from cuvil_build.cli.sizes import show_bytes
from cuvil_build.execute.clean import clean

HELP = "Remove modules and state; the store stays unless --store is given."


def command(
    store: Annotated[bool, typer.Option("--store", help="Remove the project's store as well.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    project = selection.load(directory, file, profile, sets)
    removed = clean(project.layout, store=store, dry_run=dry_run)
    if format is options.OutputFormat.json:
        console.emit_json({"removed": list(removed.paths), "bytes": removed.bytes, "dry_run": dry_run})
        return
    word = "would remove" if dry_run else "removed"
    for path in removed.paths:
        console.print_line(f"{word} {path}")
    console.print_line(f"{word} {show_bytes(removed.bytes)}")
