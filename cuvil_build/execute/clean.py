"""Removing what builds left behind."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.execute.lock import locked
from cuvil_build.execute.records import Layout

BUILD = "build"


@dataclass(frozen=True, slots=True)
class Removed:
    """Paths relative to the project."""

    paths: tuple[str, ...]
    bytes: int


def clean(layout: Layout, *, store: bool, dry_run: bool = False) -> Removed:
    """Remove the modules and all state but the store; with `store` that too. A store that `CUVIL_STORE` names
    is shared, and stays. Only folders that a build of ours made are removed."""
    if not layout.cuvil.is_dir():
        return Removed((), 0)
    with locked(layout.cuvil / "lock", lambda _: None):
        parts = [path for path in sorted(layout.cuvil.iterdir()) if path.name not in ("store", "lock")]
        if store and (layout.cuvil / "store").is_dir():
            parts.append(layout.cuvil / "store")
        if (layout.root / BUILD).is_dir() and (layout.cuvil / "records").is_dir():
            parts.append(layout.root / BUILD)
        size = sum(_size(path) for path in parts)
        for path in () if dry_run else parts:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return Removed(tuple(str(path.relative_to(layout.root)) for path in parts), size)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())
