"""Every recipe loads, and what it names is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build.config.load import load_project
from cuvil_build.config.matrix import variants
from cuvil_build.config.project import PathSource, PypiSource
from cuvil_build.paths import shipped
from cuvil_build.samples import read_npz

RECIPES = shipped("recipes")
NAMES = sorted(path.parent.name for path in RECIPES.glob("*/cuvil.yaml"))


def test_the_promised_recipes_are_there() -> None:
    assert {"quickstart", "speech", "text", "matrix"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_recipe_loads_and_its_files_are_there(name: str) -> None:
    folder = RECIPES / name
    assert (folder / "cuvil.yaml").read_text(encoding="utf-8").startswith("# ")
    loaded = load_project(folder, profile=None, sets=(), environ={})
    assert variants(loaded.project)
    for model in loaded.project.models.values():
        if isinstance(model.source, PathSource):
            assert (folder / model.source.path).is_file()
        else:
            # What comes from elsewhere is pinned, so that a recipe always builds the same thing.
            assert isinstance(model.source, PypiSource) and model.source.sha256
        for pattern in model.samples:
            files = sorted(folder.glob(pattern)) if ".." not in pattern else [*glob_up(folder, pattern)]
            assert files, pattern
            assert all(read_npz(file) for file in files)
        if model.labels:
            assert list(read_npz(folder / model.labels.file)) == ["labels"]


def glob_up(folder: Path, pattern: str) -> list[Path]:
    while pattern.startswith("../"):
        folder, pattern = folder.parent, pattern.removeprefix("../")
    return sorted(folder.glob(pattern))


def test_matrix_has_several_models_and_targets() -> None:
    found = variants(load_project(RECIPES / "matrix", profile=None, sets=(), environ={}).project)
    assert len({v.model for v in found}) >= 3 and len({v.target for v in found}) >= 3
