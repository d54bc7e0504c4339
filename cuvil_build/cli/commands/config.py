"""`cuvil config`: the values that count, and where each came from."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
import yaml

from cuvil_build.cli import console, options
from cuvil_build.config.load import LoadedProject, leaves, load_project
from cuvil_build.config.mistakes import dotted

HELP = "Check cuvil.yaml and print its values."


def command(
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
    origins: Annotated[bool, typer.Option("--origins", help="Show where every value came from.")] = False,
) -> None:
    loaded = load_project(
        options.config_file(directory, file), profile=profile, sets=sets or (), environ=os.environ
    )
    if origins:
        _print_origins(loaded, format)
        return
    values = loaded.project.model_dump(mode="json", exclude={"profiles"}, exclude_none=True)
    if format is options.OutputFormat.json:
        console.emit_json(values)
    else:
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
        console.print_line(text.rstrip("\n"))


def _print_origins(loaded: LoadedProject, format: options.OutputFormat) -> None:
    values = {dotted(path): value for path, value in leaves(loaded.project)}
    if format is options.OutputFormat.json:
        console.emit_json(
            {key: {"value": value, "origin": loaded.origins[key]} for key, value in values.items()}
        )
        return
    rows = [(key, _shown(value), loaded.origins[key]) for key, value in values.items()]
    console.print_table(("key", "value", "origin"), rows)


def _shown(value: Any) -> str:
    if value is None:
        return "~"
    if isinstance(value, bool):
        return str(value).lower()
    return {(): "[]"}.get(value, str(value)) if isinstance(value, tuple) else str(value)
