"""Size of a store, and removal of what no recent build used."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.store.local import LocalStore

_IN_FLIGHT_SECONDS = 3_600
"""A blob younger than this may belong to an action that is about to be recorded."""


@dataclass(frozen=True, slots=True)
class StoreSize:
    actions: int
    blobs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed, or would be."""

    actions: int
    blobs: int
    bytes: int
    kept: StoreSize


def measure(store: LocalStore) -> StoreSize:
    sizes = [_size(path) for path in store.blobs()]
    return StoreSize(sum(1 for _ in store.actions()), len(sizes), sum(sizes))


def collect(
    store: LocalStore, keep: Collection[str], older_than_days: float, *, dry_run: bool = False
) -> Collected:
    """Drop actions outside `keep` that were not used for so many days, then blobs that no action names."""
    now = time.time()
    dropped, needed, actions = [], set[str](), 0
    for key, path in store.actions():
        if key not in keep and now - _mtime(path) >= older_than_days * 86_400:
            dropped.append(path)
            continue
        action = store.find(key)
        if action is not None:
            actions += 1
            needed |= action.digests() | ({action.log} if action.log else set())
    grace = min(_IN_FLIGHT_SECONDS, older_than_days * 86_400)
    loose = [p for p in store.blobs() if p.name not in needed and now - _mtime(p) >= grace]
    freed = sum(_size(path) for path in loose)
    before = measure(store)
    if not dry_run:
        for path in [*dropped, *loose]:
            with contextlib.suppress(OSError):
                path.unlink()
    kept = StoreSize(actions, before.blobs - len(loose), before.bytes - freed)
    return Collected(len(dropped), len(loose), freed, kept)


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
