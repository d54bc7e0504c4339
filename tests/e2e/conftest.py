"""One workshop for all tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cuvil_build.api import Options, Project
from tests.e2e.quickstart import X64, copy_quickstart
from tests.e2e.workshop import Subject, Workshop

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("projects"), tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def digits(workshop: Workshop) -> Path:
    """The quickstart's module for x86_64-avx2."""
    folder = copy_quickstart(workshop.root / "quickstart")
    result = Project.load(folder, environ=workshop.environ).build(["target:x64"], options=Options(jobs=2))
    assert result.ok, result.failures
    return folder / X64


@pytest.fixture(scope="session")
def tiny(fixture_maker: ModuleType, fixture_feeds: Callable[..., dict[str, Any]]) -> Callable[[str], Subject]:
    """The tiny models of tests/fixtures, at their smallest and at usual sizes."""

    def subject(name: str) -> Subject:
        limits = {dim: {"min": low, "max": high} for dim, (low, high) in fixture_maker.DIMS[name].items()}
        cases = [fixture_feeds(name, case) for case in (0, 1)]
        return Subject(name, {"dims": limits}, cases, lambda path: copy(FIXTURES / f"{name}.onnx", path))

    return subject


def copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
