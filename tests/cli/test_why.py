"""`cuvil why` on a toy project."""

from __future__ import annotations

import json

import pytest

from tests.toy_fixtures import Run
from tests.toy_project import Toy


def test_why_shows_fields(run: Run, built: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    run("build")
    built.edit("models/b.txt", "bias 2", "bias 3")
    run("build")
    capsys.readouterr()
    assert run("why", "fetch:b") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["fetch:b ran in build 2", "against build 1:"]
    assert lines[2].startswith("  files.source changed: ")
    assert run("why", "fetch:a", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["status"] == "kept"
