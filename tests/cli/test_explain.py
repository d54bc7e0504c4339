"""The group of `cuvil explain`; its subjects have files of their own."""

from __future__ import annotations

import pytest

from cuvil_build import catalog
from cuvil_build.cli.commands.explain import SUBJECTS
from cuvil_build.cli.main import main


def test_subjects_are_listed_with_what_they_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--help"]) == 0
    text = capsys.readouterr().out
    for name in catalog.module_names(SUBJECTS):
        assert f"  {name}" in text
    assert "what the fusion rules decided" in text


def test_an_unknown_subject_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "fusoin"]) == 2
    assert "there is no subject 'fusoin': did you mean 'fusion'?" in capsys.readouterr().err
