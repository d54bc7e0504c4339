"""`cuvil graph`: the build graph as a picture or as data."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cuvil_build.cli import console, options, selection
from cuvil_build.plan.draw import draw

HELP = "Draw the build graph: dot, mermaid, json, svg or html."


class Picture(StrEnum):
    dot = "dot"
    mermaid = "mermaid"
    json = "json"
    svg = "svg"
    html = "html"


def command(
    selectors: selection.StepSelectorArgument = None,
    format: Annotated[Picture, typer.Option("--format", help="How to draw it.")] = Picture.dot,
    output: options.OutputOption = None,
    until: selection.UntilOption = "",
    directory: options.FolderOption = options.HERE,
    file: options.FileOption = None,
    profile: options.ProfileOption = None,
    sets: options.SetOption = None,
) -> None:
    project = selection.load(directory, file, profile, sets)
    chosen = project.plan(selectors or (), until=until)
    status = {step: str(resolved.status) for step, resolved in chosen.plan.resolved.items()}
    text = draw(chosen.plan.dag, chosen.steps, status, format.value)
    if output is None:
        console.print_line(text.rstrip("\n"))
    else:
        output.write_text(text, encoding="utf-8")
