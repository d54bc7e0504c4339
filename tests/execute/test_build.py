"""Builds with toy steps: what runs, what does not, and what is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_project import Toy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy.make(tmp_path / "project")


def test_a_build_delivers_every_variant(toy: Toy) -> None:
    result = toy.build()
    assert result.ok, result.failures
    assert toy.text("build/a/fp32/x64/module.so") == "add.c=x86_64: x+y\nmul.c=x86_64: x*y\n"
