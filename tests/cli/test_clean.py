"""`cuvil clean` on a toy project."""

from __future__ import annotations

import pytest

from tests.toy_fixtures import Run
from tests.toy_project import Toy


def test_clean_keeps_the_store_unless_told(run: Run, built: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    run("build")
    assert run("clean", "--dry-run") == 0
    assert (built.root / "build").exists()
    assert run("clean") == 0
    assert sorted(path.name for path in (built.root / ".cuvil").iterdir()) == ["lock", "store"]
    assert not (built.root / "build").exists()
    capsys.readouterr()
    assert run("build") == 0
    assert "0 steps run, 24 from the store" in capsys.readouterr().out
    assert run("clean", "--store") == 0
    assert not (built.root / ".cuvil/store").exists()


def test_clean_leaves_a_build_folder_that_is_not_ours(run: Run, built: Toy) -> None:
    built.wipe()
    (built.root / "build").mkdir()
    built.write("build/notes.txt", "mine")
    assert run("clean") == 0
    assert built.text("build/notes.txt") == "mine"
