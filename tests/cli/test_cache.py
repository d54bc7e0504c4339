"""`cuvil cache` on a toy project."""

from __future__ import annotations

import json

import pytest

from tests.toy_fixtures import Run
from tests.toy_project import Toy


def test_cache_stats_and_gc(run: Run, built: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    run("build")
    capsys.readouterr()
    assert run("cache", "--format", "json") == 0
    before = json.loads(capsys.readouterr().out)
    assert before["actions"] == 24
    assert run("cache", "gc", "--older-than", "0") == 0
    capsys.readouterr()
    assert run("build", "--until", "bundle") == 0
    assert "nothing to do" in capsys.readouterr().out, "the last builds' steps stay"
    assert run("cache", "gc", "--older-than", "0", "--keep-builds", "0") == 0
    assert run("cache", "stats", "--format", "json") == 0
    assert '"actions": 0' in capsys.readouterr().out
    assert run("cache", "push") == 1
