"""The store: content in, the same content out, whatever happens between."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from cuvil_build.errors import BlobMissing
from cuvil_build.steps.artifact import Action, Artifact, digest_bytes
from cuvil_build.store.local import LINK_FROM, LocalStore, store_folder


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def file_of(folder: Path, name: str, content: bytes, mode: int = 0o644) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / name
    path.write_bytes(content)
    path.chmod(mode)
    return path


def damage(path: Path, content: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(content)


def test_blobs_come_back_as_they_went_in(store: LocalStore) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    digest = store.put(array)
    assert digest == digest_bytes(array.tobytes())
    assert bytes(store.open(digest)) == array.tobytes()
    assert store.open(digest).readonly
    assert store.open(digest) is store.open(digest)
    empty = store.put(b"")
    assert bytes(store.open(empty)) == b""


def test_equal_blobs_are_kept_once(store: LocalStore) -> None:
    assert store.put(b"abc") == store.put(bytearray(b"abc"))
    assert len(list(store.blobs())) == 1


def test_a_missing_blob_is_an_error_of_its_own(store: LocalStore) -> None:
    with pytest.raises(BlobMissing):
        store.open("0" * 64)


@pytest.mark.parametrize("content", [b"abd", b"ab", b"", b"abcd"])
def test_a_damaged_blob_is_absent_and_noted(store: LocalStore, content: bytes) -> None:
    digest = store.put(b"abc")
    damage(store.path(digest), content)
    assert not LocalStore(store.folder).check(digest, 3)
    other = LocalStore(store.folder)
    with pytest.raises(BlobMissing):
        other.open(digest)
    assert store.put(b"abc") == digest
    assert bytes(LocalStore(store.folder).open(digest)) == b"abc"


def test_putting_repairs_a_blob_of_the_wrong_size(store: LocalStore) -> None:
    digest = store.put(b"abc")
    damage(store.path(digest), b"torn")
    LocalStore(store.folder).put(b"abc")
    assert store.path(digest).read_bytes() == b"abc"


def test_files_and_folders_are_taken_and_placed(store: LocalStore, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    file_of(folder / "sub", "b.txt", b"b")
    file_of(folder, "run", b"#!", 0o755)
    artifact = store.take(folder, folder=True)
    assert not folder.exists()
    assert sorted(artifact.files) == ["run", "sub/b.txt"]
    file_of(tmp_path / "place", "stale", b"goes")
    store.place(artifact, tmp_path / "place", tmp_path / "tmp")
    assert sorted(p.name for p in (tmp_path / "place").iterdir()) == ["run", "sub"]
    assert os.access(tmp_path / "place/run", os.X_OK)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_digest_of_a_folder_covers_names_content_and_mode(store: LocalStore, tmp_path: Path) -> None:
    digests = set()
    for index, (name, content, mode) in enumerate(
        [("a", b"1", 0o644), ("b", b"1", 0o644), ("a", b"2", 0o644), ("a", b"1", 0o755), ("a", b"1", 0o600)]
    ):
        folder = tmp_path / str(index)
        file_of(folder, name, content, mode)
        digests.add(store.take(folder, folder=True).digest)
    assert len(digests) == 4, "read and write permissions do not count"


def test_editing_a_small_output_leaves_the_store_alone(store: LocalStore, tmp_path: Path) -> None:
    artifact = store.take(file_of(tmp_path, "x", b"small"), folder=False)
    store.place(artifact, tmp_path / "placed", tmp_path / "tmp")
    (tmp_path / "placed").write_bytes(b"edited")
    assert store.sound(Action({"x": artifact}))


def test_big_outputs_are_read_only_links(store: LocalStore, tmp_path: Path) -> None:
    artifact = store.take(file_of(tmp_path, "x", b"1" * LINK_FROM), folder=False)
    store.place(artifact, tmp_path / "placed", tmp_path / "tmp")
    stat = (tmp_path / "placed").stat()
    assert stat.st_nlink == 2
    assert stat.st_mode & 0o222 == 0


def test_placing_falls_back_to_copies(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    artifact = store.take(file_of(tmp_path, "x", b"1" * LINK_FROM), folder=False)
    store.place(artifact, tmp_path / "placed", tmp_path / "tmp")
    assert (tmp_path / "placed").stat().st_size == LINK_FROM


def test_a_damaged_blob_is_never_placed(store: LocalStore, tmp_path: Path) -> None:
    artifact = store.take(file_of(tmp_path, "x", b"right"), folder=False)
    damage(store.path(artifact.digest), b"wrong")
    with pytest.raises(BlobMissing):
        store.place(artifact, tmp_path / "placed", tmp_path / "tmp")
    assert not (tmp_path / "placed").exists()


def test_actions_are_found_by_key(store: LocalStore, tmp_path: Path) -> None:
    artifact = store.take(file_of(tmp_path, "x", b"1"), folder=False)
    action = Action({"x": artifact}, (store.put(b"weights"),), store.put(b"log"), 1.5)
    store.record("k", action)
    assert store.find("k") == action
    assert store.find("other") is None
    assert store.notes == []


@pytest.mark.parametrize("what", ["{", "{}", "[]", "null", '{"key":"k","action":{},"check":""}', "\x00\xff"])
def test_a_damaged_action_is_a_miss_with_a_note(store: LocalStore, what: str) -> None:
    store.record("k", Action({}))
    damage(store.folder / "actions/k.json", what.encode())
    assert store.find("k") is None
    assert "damaged" in store.notes[0]
    assert store.find("k") is None
    assert len(store.notes) == 1, "it was removed"


def test_an_action_under_another_key_is_a_miss(store: LocalStore) -> None:
    store.record("k", Action({}))
    (store.folder / "actions/k.json").rename(store.folder / "actions/other.json")
    assert store.find("other") is None


def test_an_action_without_its_blobs_is_a_miss(store: LocalStore, tmp_path: Path) -> None:
    artifact = store.take(file_of(tmp_path, "x", b"1"), folder=False)
    referred = store.put(b"weights")
    store.record("k", Action({"x": artifact}, (referred,)))
    store.path(referred).unlink()
    assert store.find("k") is None


def test_what_dead_writers_left_goes_and_what_the_living_write_stays(store: LocalStore) -> None:
    store.put(b"x")
    temporary = store.folder / "tmp"
    host = os.uname().nodename
    dead = temporary / f"{host}.999999999.0.1"
    alive = temporary / f"{host}.{os.getpid()}.0.1"
    foreign = temporary / "elsewhere.1.0.1"
    for path in (dead, alive, foreign):
        path.write_bytes(b"")
    store.clean()
    assert (dead.exists(), alive.exists(), foreign.exists()) == (False, True, True)


def write_all(folder: str, seed: int) -> None:
    store = LocalStore(Path(folder))
    for index in range(40):
        content = str((index * 7 + seed) % 40).encode() * 1000
        digest = store.put(content)
        work = Path(folder) / f"out{seed}"
        artifact = store.take(file_of(work, "x", content), folder=False)
        store.record(digest, Action({"x": artifact}))
        assert LocalStore(Path(folder)).find(digest) is not None


def test_racing_writers_leave_whole_entries(store: LocalStore) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_all, args=(str(store.folder), seed)) for seed in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(list(store.actions())) == 40
    for key, _ in store.actions():
        action = store.find(key)
        assert action is not None and store.sound(action)
    assert store.notes == []
    assert list((store.folder / "tmp").iterdir()) == []


def test_the_environment_may_name_a_shared_store(tmp_path: Path) -> None:
    assert store_folder(tmp_path, {}) == tmp_path / ".cuvil/store"
    assert store_folder(tmp_path, {"CUVIL_STORE": "/shared"}) == Path("/shared")


def test_artifacts_survive_json() -> None:
    entry = Artifact.from_json({"folder": True, "files": {"a": ["0" * 64, 3, True]}})
    assert Artifact.from_json(entry.to_json()) == entry
