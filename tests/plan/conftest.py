"""A fresh toy project for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toy_project import Toy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy.make(tmp_path / "project")
