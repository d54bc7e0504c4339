"""Garbage collection keeps what recent builds used and what is in use."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cuvil_build.steps.artifact import Action
from cuvil_build.store.gc import collect, measure
from cuvil_build.store.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Three actions of one file each; `old` was last used a month ago, and shares a blob with `new`."""
    store = LocalStore(tmp_path / "store")
    shared = store.put(b"shared")
    for key in ("old", "kept", "new"):
        file = tmp_path / key
        file.write_bytes(key.encode() * 10)
        store.record(key, Action({"x": store.take(file, folder=False)}, (shared,)))
    long_ago = time.time() - 30 * 86_400
    for path in [store.folder / "actions/old.json", store.folder / "actions/kept.json", *store.blobs()]:
        os.utime(path, (long_ago, long_ago))
    return store


def test_old_actions_go_with_the_blobs_that_no_other_needs(store: LocalStore) -> None:
    done = collect(store, {"kept"}, 7)
    assert (done.actions, done.blobs, done.bytes) == (1, 1, 30)
    assert [key for key, _ in store.actions()] == ["kept", "new"]
    for key in ("kept", "new"):
        action = store.find(key)
        assert action is not None and store.sound(action)
    assert measure(store) == done.kept


def test_a_dry_run_removes_nothing(store: LocalStore) -> None:
    before = measure(store)
    assert collect(store, set(), 7, dry_run=True).actions == 2
    assert measure(store) == before


def test_finding_an_action_counts_as_use(store: LocalStore) -> None:
    store.find("old")
    assert collect(store, set(), 7).actions == 1, "kept, which nobody used"


def test_blobs_of_an_action_that_is_about_to_be_recorded_stay(store: LocalStore) -> None:
    digest = store.put(b"a moment ago")
    collect(store, {"kept"}, 7)
    assert store.check(digest)
