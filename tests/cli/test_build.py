"""`cuvil build` on a toy project."""

from __future__ import annotations

import json

import pytest

from tests.toy_fixtures import Run
from tests.toy_project import Toy


def test_build_tells_what_it_did_and_then_that_there_is_nothing(
    run: Run, built: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    built.wipe()
    assert run("build", "-j2") == 0
    shown = capsys.readouterr()
    assert "\nbuild/a/fp32/x64\n" in shown.out
    assert "critical path" in shown.out and ".cuvil/builds/1/trace.json" in shown.out
    assert "24 steps run" in shown.out or "from the store" in shown.out
    assert run("build", "-j2") == 0
    assert capsys.readouterr().out == "nothing to do (3 variants up to date)\n"


def test_json_lines_of_a_build(run: Run, built: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    built.wipe()
    assert run("build", "b", "--format", "json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["event"] == "planned" and rows[-1]["event"] == "finished"
    assert rows[-1]["ok"] and rows[-1]["ran"] == len([r for r in rows if r["event"] == "ended"])


def test_a_failure_is_shown_once(run: Run, built: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    built.edit("models/a.txt", "kernel mul", "kernal mul")
    assert run("build", "-j1") == 1
    shown = capsys.readouterr()
    both = shown.out + shown.err
    assert both.count("error[invalid-model]: 'kernal mul x*y' is no kernel") == 1
    assert "Traceback" not in both
    assert "log: .cuvil/logs/import_model/a.log" in shown.err
    assert "1 failed" in shown.out
