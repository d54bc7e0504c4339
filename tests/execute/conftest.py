"""A fresh toy project for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.toy_project import Toy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy.make(tmp_path / "project")


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    toy = Toy.make(tmp_path_factory.mktemp("once") / "project")
    assert toy.build().ok
    return toy


@pytest.fixture
def built(once: Toy, tmp_path: Path) -> Toy:
    """A toy project that is up to date: a copy with the same times, which is what outputs are known by."""
    shutil.copytree(once.root, tmp_path / "project")
    return Toy(tmp_path / "project")
