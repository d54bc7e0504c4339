"""A toy project that is up to date: building it for each test would take most of their time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.toy_project import Toy


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    toy = Toy.make(tmp_path_factory.mktemp("once") / "project")
    assert toy.build().ok
    return toy


@pytest.fixture
def toy(once: Toy, tmp_path: Path) -> Toy:
    """A copy with the same times, which is what outputs are known by."""
    shutil.copytree(once.root, tmp_path / "project")
    return Toy(tmp_path / "project")
