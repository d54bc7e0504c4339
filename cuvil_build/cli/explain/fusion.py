"""`cuvil explain fusion`: the regions of a model, and why other nodes are in none."""

from __future__ import annotations

from typing import Annotated

import typer

from cuvil_build.cli import options, selection
from cuvil_build.errors import NotYet

HELP = "Show what the fusion rules decided, and why."


def command(
    selectors: selection.SelectorArgument = None,
    node: Annotated[
        str, typer.Option("--node", metavar="PATTERN", help="Only decisions on a node with such a name.")
    ] = "",
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
    format: options.FormatOption = options.TEXT,
) -> None:
    raise NotYet("'cuvil explain fusion'")
