"""What is checked after a worker returned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuvil_build.errors import InputChanged, MissingOutput
from cuvil_build.execute.perform import Planned, check_files
from cuvil_build.execute.records import Layout
from cuvil_build.plan.node import Node

OUTPUTS = {"text": "work/text.txt", "tree": "work/tree/"}
NODE = Node("k:a", "k", "m:f", OUTPUTS, {}, files={"source": "source.txt"})


@pytest.fixture
def outputs(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "source.txt").write_text("source")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/leaf").write_text("leaf")
    (tmp_path / "text").write_text("text")
    return {"text": tmp_path / "text", "tree": tmp_path / "tree"}


def check(root: Path, outputs: dict[str, Path]) -> None:
    stat = (root / "source.txt").stat()
    planned = Planned({}, {"source.txt": [stat.st_size, stat.st_mtime_ns, stat.st_ino]}, frozenset())
    check_files(Layout(root), planned, NODE, outputs)


def test_outputs_that_are_there_are_fine(tmp_path: Path, outputs: dict[str, Path]) -> None:
    check(tmp_path, outputs)


def test_a_missing_file_an_empty_folder_and_a_file_for_a_folder_are_named(
    tmp_path: Path, outputs: dict[str, Path]
) -> None:
    (tmp_path / "tree/leaf").unlink()
    with pytest.raises(MissingOutput, match="step 'k:a' did not write its output 'tree'"):
        check(tmp_path, outputs)
    (tmp_path / "tree").rmdir()
    (tmp_path / "tree").write_text("no folder")
    with pytest.raises(MissingOutput, match="'tree'"):
        check(tmp_path, outputs)
    (tmp_path / "text").unlink()
    with pytest.raises(MissingOutput, match="'text'"):
        check(tmp_path, outputs)


def test_a_source_with_another_time_or_size_is_named(tmp_path: Path, outputs: dict[str, Path]) -> None:
    planned = Planned({}, {"source.txt": [6, 1, 1]}, frozenset())
    with pytest.raises(InputChanged, match=r"'source\.txt' changed while step 'k:a' was reading it"):
        check_files(Layout(tmp_path), planned, NODE, outputs)
    os.utime(tmp_path / "source.txt")
    check(tmp_path, outputs)
