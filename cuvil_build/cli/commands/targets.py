"""`cuvil targets`: the machines that modules can be built for."""

from __future__ import annotations

from cuvil_build import paths
from cuvil_build.cli import console, options
from cuvil_build.target.load import load_target, target_names

HELP = "List the targets that modules can be built for."


def command(
    directory: options.FolderOption = options.HERE, format: options.FormatOption = options.TEXT
) -> None:
    folders = paths.search_path("targets", directory)
    targets = [load_target(name, folders) for name in target_names(folders)]
    if format is options.OutputFormat.json:
        console.emit_json([target.model_dump(mode="json") for target in targets])
        return
    rows = [
        (t.name, f"{t.vector_bytes * 8} bit", f"{t.tile.rows}x{t.tile.vectors}", t.runner, t.description)
        for t in targets
    ]
    console.print_table(("target", "vectors", "tile", "runs in", "description"), rows)
