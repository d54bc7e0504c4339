"""A store that is only read: what it has is used, what is new goes elsewhere, and it stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuvil_build.errors import BlobMissing
from cuvil_build.steps.artifact import Action
from cuvil_build.store.local import LocalStore
from cuvil_build.store.overlay import OverlayStore, open_store


def record(store: LocalStore, folder: Path, key: str, content: bytes) -> Action:
    folder.mkdir(exist_ok=True)
    (folder / "out").write_bytes(content)
    action = Action({"out": store.take(folder / "out", folder=False)})
    store.record(key, action)
    return action


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def base(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "base")
    record(store, tmp_path / "made", "1" * 64, b"one")
    return store


def test_what_the_base_has_is_found_and_placed(base: LocalStore, tmp_path: Path) -> None:
    store = OverlayStore(tmp_path / "own", base.folder)
    action = store.find("1" * 64)
    assert action is not None and store.sound(action)
    store.place(action.outputs["out"], tmp_path / "placed", tmp_path / "work")
    assert (tmp_path / "placed").read_bytes() == b"one"


def test_nothing_is_written_to_the_base(base: LocalStore, tmp_path: Path) -> None:
    before = tree(base.folder)
    store = OverlayStore(tmp_path / "own", base.folder)
    new = record(store, tmp_path / "made", "2" * 64, b"two")
    record(store, tmp_path / "made", "3" * 64, b"one")
    digest = store.put(b"three")
    assert bytes(store.open(digest)) == b"three"
    assert store.find("2" * 64) == new and store.find("3" * 64) is not None
    assert tree(base.folder) == before
    assert base.find("2" * 64) is None


def test_a_damaged_blob_of_the_base_is_absent_and_stays(base: LocalStore, tmp_path: Path) -> None:
    (blob,) = base.blobs()
    blob.chmod(0o644)
    blob.write_bytes(b"eno")
    store = OverlayStore(tmp_path / "own", base.folder)
    action = store.find("1" * 64)
    assert action is not None and not store.sound(action)
    assert "it stays" in store.notes[0]
    with pytest.raises(BlobMissing):
        store.open(blob.name)
    assert store.put(b"one") == blob.name
    assert bytes(store.open(blob.name)) == b"one"
    assert blob.read_bytes() == b"eno"


def test_a_damaged_action_of_the_base_is_absent_and_stays(base: LocalStore, tmp_path: Path) -> None:
    ((_, path),) = base.actions()
    path.chmod(0o644)
    path.write_bytes(b"{}")
    store = OverlayStore(tmp_path / "own", base.folder)
    assert store.find("1" * 64) is None and path.exists()
    again = record(store, tmp_path / "made", "1" * 64, b"one")
    assert store.find("1" * 64) == again


def test_processes_open_the_store_that_the_planner_has(base: LocalStore, tmp_path: Path) -> None:
    store = OverlayStore(tmp_path / "own", base.folder)
    assert isinstance(open_store(store.folder, store.base_folder), OverlayStore)
    assert type(open_store(base.folder, base.base_folder)) is LocalStore
