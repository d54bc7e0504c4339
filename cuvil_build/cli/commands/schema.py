"""`cuvil schema`: the JSON Schema of cuvil.yaml, for editors."""

from __future__ import annotations

from cuvil_build.cli import console
from cuvil_build.config.project import json_schema

HELP = "Print the JSON Schema of cuvil.yaml."


def command() -> None:
    console.emit_json(json_schema())
