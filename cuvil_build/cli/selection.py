"""What the verbs of the build graph share: the project of the common options, and the selector argument."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cuvil_build.api import Project

SelectorArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SELECTOR]...", help="As in detector, model:detector,target:web or tag:release."),
]
StepSelectorArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SELECTOR]...",
        help="Variants, or steps as in codegen:detector/fp32/x64 and fuse:detector/*+.",
    ),
]
UntilOption = Annotated[
    str, typer.Option("--until", metavar="STEP", help="Stop after this step, or kind of step.")
]


def load(directory: Path, file: Path | None, profile: str | None, sets: list[str] | None) -> Project:
    return Project.load(directory, file=file, profile=profile, sets=sets or (), environ=os.environ)
