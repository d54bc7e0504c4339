"""Files that cuvil.yaml names: what is said of those that are not there, and when nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build.config.files import check_files
from cuvil_build.config.load import load_project
from cuvil_build.errors import ManyErrors, MissingFile

TEXT = """\
version: 1
project: p
models:
  a: {source: a.onnx, samples: data/*.npz}
  b: {source: b.onnx}
  packaged: {source: {pypi: some-package, version: "1", member: m.onnx}}
targets: {x64: {use: x86_64}}
fusion: {rules: [default, none/*.yaml]}
"""


def check(folder: Path, *models: str) -> None:
    (folder / "cuvil.yaml").write_text(TEXT)
    check_files(load_project(folder, profile=None, sets=[], environ={}), folder, models)


def test_only_the_models_that_are_built_count(tmp_path: Path) -> None:
    (tmp_path / "b.onnx").touch()
    check(tmp_path, "b", "packaged")
    with pytest.raises(ManyErrors) as caught:
        check(tmp_path, "a", "b")
    assert [error.message for error in caught.value.errors] == [
        "there is no file 'a.onnx'",
        "no file matches 'data/*.npz'",
    ]


def test_all_is_well_when_everything_is_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a.onnx", "b.onnx", "data/1.npz"):
        (tmp_path / name).touch()
    check(tmp_path, "a", "b", "packaged")


def test_a_near_name_is_offered(tmp_path: Path) -> None:
    (tmp_path / "bb.onnx").touch()
    with pytest.raises(MissingFile) as caught:
        check(tmp_path, "b")
    assert caught.value.hint == "did you mean 'bb.onnx'?"
    assert (caught.value.loc.line, caught.value.loc.column) == (5, 15)
