"""`cuvil verify` on a toy project."""

from __future__ import annotations

import json

import pytest

from tests.toy_fixtures import Run
from tests.toy_project import Toy


def test_verify_prints_reports_and_fails_with_its_own_code(
    run: Run, built: Toy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "b", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["reports"]["b/fp32/x64"]["size"] > 0
    built.edit("models/b.txt", "kernel add", "wrong\nkernel add")
    assert run("verify") == 3
    shown = capsys.readouterr()
    assert "a/fp32/x64: verified" in shown.out
    assert "b/fp32/x64: verified" not in shown.out
    assert "verification-failed" in shown.err
