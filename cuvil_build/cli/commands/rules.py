"""`cuvil rules`: the fusion rules, the project's and the shipped ones."""

from __future__ import annotations

from pathlib import Path

from cuvil_build import paths, yaml_source
from cuvil_build.cli import console, options
from cuvil_build.errors import WrongType

HELP = "List the fusion rules."
COLUMNS = ("name", "granularity", "stage", "description")


def command(
    directory: options.FolderOption = options.HERE, format: options.FormatOption = options.TEXT
) -> None:
    rows = [_row(name, directory) for name in paths.find_yaml("rules", directory)]
    if format is options.OutputFormat.json:
        console.emit_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        console.print_table(("rule", *COLUMNS[1:]), rows)


def _row(name: str, directory: Path) -> tuple[str, ...]:
    file = paths.find_yaml("rules", directory)[name]
    source = yaml_source.load(file, f"{file.parent.name}/{file.name}")
    if not isinstance(source.data, dict):
        raise WrongType("a rule file must be a mapping", loc=source.loc(()))
    return tuple(" ".join(str(source.data.get(column, "")).split()) for column in COLUMNS)
