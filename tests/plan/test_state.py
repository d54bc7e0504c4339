"""The test for nothing to do: quick, with the standard library alone, and never wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuvil_build.plan import state
from tests.toy_fixtures import Run, cuvil
from tests.toy_project import Toy


def has_nothing_to_do(toy: Toy, *words: str, **more: dict[str, str]) -> bool:
    return cuvil(toy, "build", *words, **more).stdout.startswith("nothing to do")


def test_nothing_to_do_is_seen_with_the_standard_library_alone(run: Run, built: Toy) -> None:
    assert run("build") == 0
    done = cuvil(built, "build")
    assert (done.returncode, done.stdout) == (0, "nothing to do (3 variants up to date)\n")
    loaded = set(done.stderr.split())
    assert "cuvil_build" in loaded
    started_with = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout
    site = {name.partition(".")[0] for name in started_with.split()}
    assert loaded - {"cuvil_build"} - site <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.edit("models/a.txt", "bias 1", "bias 7"),
        lambda t: t.edit("cuvil.yaml", "x86_64-avx2", "x86_64"),
        lambda t: t.edit("cuvil.yaml", "project: toy", "project: toy # c"),
        lambda t: t.write("build/a/fp32/x64/module.so", "x"),
        lambda t: (t.root / "build/a/fp32/x64/manifest.json").unlink(),
        lambda t: (t.root / "models/b.txt").unlink(),
        lambda t: (t.root / "targets").mkdir(),
        lambda t: t.write(".cuvil/state.json", "{"),
        lambda t: t.write(".cuvil/state.json", '{"version": 1, "entries": {"[]": []}}'),
    ],
)
def test_any_change_is_seen(run: Run, built: Toy, change: Callable[[Toy], object]) -> None:
    assert run("build") == 0
    assert has_nothing_to_do(built)
    change(built)
    assert not has_nothing_to_do(built, "--help")
    assert state.up_to_date([], dict(os.environ)) is None


def test_other_arguments_and_environment_are_seen(run: Run, built: Toy) -> None:
    environ = dict(os.environ)
    assert run("build", "a") == 0
    assert state.up_to_date(["a"], environ) == "nothing to do (2 variants up to date)"
    assert state.up_to_date(["-C", str(built.root), "a"], environ) is None
    assert state.up_to_date([], environ) is None
    assert state.up_to_date(["a", "--force"], environ) is None
    assert state.up_to_date(["a"], {**environ, "TOY_LINK": "1"}) is None
    assert state.up_to_date(["a"], {**environ, "CUVIL__PROJECT": "other"}) is None
    assert state.up_to_date(["a"], {**environ, "UNRELATED": "1"}) is not None


def test_a_touched_model_is_read_once(run: Run, built: Toy) -> None:
    assert run("build") == 0
    (built.root / "models/a.txt").touch()
    before = (built.root / ".cuvil/state.json").read_text()
    assert state.up_to_date([], dict(os.environ)) is not None
    assert (built.root / ".cuvil/state.json").read_text() != before


def test_a_project_elsewhere_is_seen_through_its_folder(
    run: Run, built: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    words = ["-C", str(built.root)]
    assert run("build", *words) == 0
    assert state.up_to_date(words, dict(os.environ)) is not None
