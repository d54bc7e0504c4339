"""A store that only reads another one: what is made anew goes to a folder that the build throws away."""

from __future__ import annotations

from pathlib import Path

from cuvil_build.steps.artifact import Action
from cuvil_build.store.local import LocalStore


class OverlayStore(LocalStore):
    """`folder` takes everything that is written; what it lacks is looked up in `base`, which stays as it is.

    A damaged entry of the base is noted and counts as absent, and is not removed.
    """

    def __init__(self, folder: Path, base: Path) -> None:
        super().__init__(folder)
        self.base = LocalStore(base)
        self._refused: set[Path] = set()

    @property
    def base_folder(self) -> Path | None:
        return self.base.folder

    def path(self, digest: str) -> Path:
        own, shared = super().path(digest), self.base.path(digest)
        return own if own.exists() or shared in self._refused or not shared.exists() else shared

    def _action_path(self, key: str) -> Path:
        own, shared = super()._action_path(key), self.base._action_path(key)
        return own if own.exists() or shared in self._refused else shared

    def record(self, key: str, action: Action) -> None:
        self._record(super()._action_path(key), key, action)

    def _mark_used(self, path: Path) -> None:
        """The base's times are not ours to change, and our own folder is gone before anyone collects it."""

    def _discard(self, path: Path, why: str) -> None:
        if path.is_relative_to(self.folder):
            super()._discard(path, why)
            return
        self._refused.add(path)
        self.notes.append(f"store: {why}; it stays, since the store is only read, and counts as absent")


def open_store(folder: Path, base: Path | None) -> LocalStore:
    """The store of a process that runs steps, as the planner's `folder` and `base_folder` name it."""
    return LocalStore(folder) if base is None else OverlayStore(folder, base)
