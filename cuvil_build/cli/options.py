"""Options that every verb shares, as annotated types, and the project that they select."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

CONFIG_NAME = "cuvil.yaml"


class OutputFormat(StrEnum):
    text = "text"
    json = "json"


FolderOption = Annotated[
    Path, typer.Option("-C", "--directory", metavar="DIR", help="Work on the project in this folder.")
]
FileOption = Annotated[
    Path | None,
    typer.Option("-f", "--file", metavar="FILE", help="The config file, relative to the project folder."),
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="Merge this profile over the rest.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one value, as in cache.mode=read-only."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write to a file instead of printing."),
]
FormatOption = Annotated[OutputFormat, typer.Option("--format", help="How to print the answer.")]

HERE = Path()
TEXT = OutputFormat.text


def config_file(directory: Path, file: Path | None) -> Path:
    """The config that -C and -f select."""
    return directory / (file or CONFIG_NAME)
