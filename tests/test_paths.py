from pathlib import Path

from cuvil_build import paths


def test_the_project_wins_over_what_is_shipped(tmp_path: Path) -> None:
    folder = tmp_path / "targets"
    folder.mkdir()
    (folder / "x86_64.yaml").write_text("name: x86_64\n")
    (folder / "_base.yaml").write_text("name: base\n")
    found = paths.find_yaml("targets", tmp_path)
    assert found["x86_64"] == (folder / "x86_64.yaml").resolve()
    assert found["aarch64-neon"].parent == paths.shipped("targets")
    assert "_base" not in found
    assert list(found) == sorted(found)


def test_a_folder_is_searched_once() -> None:
    project = paths.shipped("targets").parent
    assert paths.search_path("targets", project) == (paths.shipped("targets"),)


def test_the_example_is_found() -> None:
    assert paths.example_config().is_file()
