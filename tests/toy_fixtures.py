"""Fixtures of tests that build the toy project; a conftest imports what its folder needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuvil_build import api
from cuvil_build.cli.main import main
from tests.toy_project import Toy

TOP = Path(__file__).parents[1]
Run = Callable[..., int]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    toy = Toy.make(tmp_path_factory.mktemp("once") / "project")
    assert toy.build().ok
    return toy


@pytest.fixture
def built(once: Toy, tmp_path: Path) -> Toy:
    """A toy project that is up to date: a copy with the same times, which is what outputs are known by."""
    shutil.copytree(once.root, tmp_path / "project")
    return Toy(tmp_path / "project")


@pytest.fixture
def fresh(tmp_path: Path) -> Toy:
    return Toy.make(tmp_path / "project")


@pytest.fixture
def run(built: Toy, monkeypatch: pytest.MonkeyPatch) -> Run:
    """One command line in the toy project, with the toy steps, in this process."""
    monkeypatch.setattr(api, "STEPS", "tests.toy_catalog")
    monkeypatch.chdir(built.root)

    def command(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["cuvil", *words])
        return main(list(words))

    return command


def cuvil(toy: Toy, *words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A process of its own with the real steps; it reports the modules that it loaded."""
    code = (
        "import sys; from cuvil_build.__main__ import main; code = main();"
        "print(' '.join(sorted({n.partition('.')[0] for n in sys.modules})), file=sys.stderr); sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=toy.root,
        env={**os.environ, "PYTHONPATH": str(TOP), **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )
