"""The content-addressed store in a folder: blobs by SHA-256, finished actions by key.

Everything is written to a temporary name, synced and renamed, so that any number of builds may share one
store and be killed at any moment. Everything is checked against its digest when it is read; what does not
agree is removed, noted, and counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import mmap
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cuvil_build.errors import BlobMissing
from cuvil_build.steps.artifact import (
    Action,
    Artifact,
    FileEntry,
    canonical_json,
    digest_bytes,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

LINK_FROM = 1 << 20
"""Files from this size on are placed as hard links of the blob; smaller ones are copied, so that a user who
edits one does not edit the store."""

_CHUNK = 1 << 20
_STALE_SECONDS = 86_400
_USED_AGAIN_SECONDS = 3_600


def store_folder(root: Path, environ: Mapping[str, str]) -> Path:
    """`CUVIL_STORE` names a store that several projects share."""
    shared = environ.get("CUVIL_STORE")
    return Path(shared).expanduser().absolute() if shared else root / ".cuvil" / "store"


class LocalStore:
    """One store folder as one process uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []
        """What was found damaged, for people."""
        self.touched: set[str] = set()
        """Digests put or opened since the last `forget`: what a step's outputs may refer to."""
        self._blobs = folder / "blobs" / "sha256"
        self._actions = folder / "actions"
        self._temporary = folder / "tmp"
        self._verified: dict[str, tuple[int, int, int]] = {}
        self._maps: dict[str, memoryview] = {}
        self._counter = itertools.count()

    def put(self, data: Buffer) -> str:
        view = memoryview(data).cast("B")
        digest = digest_bytes(view)
        self.touched.add(digest)
        if not self._has(digest, len(view)):
            self._write(self.path(digest), view)
        return digest

    def open(self, digest: str) -> memoryview:
        self.touched.add(digest)
        known = self._maps.get(digest)
        if known is not None:
            return known
        if not self.check(digest):
            raise BlobMissing(f"blob {digest} is not in the store", hint="build again: it is made anew")
        with self.path(digest).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)) if size else memoryview(b"")
        self._maps[digest] = view
        return view

    @property
    def base_folder(self) -> Path | None:
        """The store that this one only reads, if there is one."""
        return None

    def path(self, digest: str) -> Path:
        return self._blobs / digest[:2] / digest

    def forget(self) -> None:
        """Start counting anew what a step touches."""
        self.touched.clear()

    def check(self, digest: str, size: int | None = None) -> bool:
        """Whether the blob is there and is what its name says; a damaged one is removed."""
        path = self.path(digest)
        try:
            stat = path.stat()
        except OSError:
            return False
        mark = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        if self._verified.get(digest) == mark:
            return True
        if (size is None or stat.st_size == size) and _digest_of(path) == digest:
            self._verified[digest] = mark
            return True
        self._discard(path, f"blob {digest[:12]} is damaged")
        return False

    def find(self, key: str) -> Action | None:
        """The action of a key if it and all of its blobs are there. Contents are checked when placed."""
        path = self._action_path(key)
        try:
            text = path.read_bytes()
        except OSError:
            return None
        action = _read_action(text, key)
        if action is None:
            self._discard(path, f"action {key[:12]} is damaged")
            return None
        sizes = {e.digest: e.size for artifact in action.outputs.values() for e in artifact.files.values()}
        for digest in sorted(action.digests()):
            if not self._has(digest, sizes.get(digest)):
                self.notes.append(f"store: action {key[:12]} lost blob {digest[:12]}; its step runs again")
                return None
        self._mark_used(path)
        return action

    def sound(self, action: Action) -> bool:
        """Whether all output files of the action still have their content."""
        return all(
            self.check(entry.digest, entry.size)
            for artifact in action.outputs.values()
            for entry in artifact.files.values()
        )

    def record(self, key: str, action: Action) -> None:
        self._record(self._action_path(key), key, action)

    def take(self, path: Path, folder: bool) -> Artifact:
        """Move a finished output into the store. The path is gone afterwards."""
        if not folder:
            return Artifact({"": self._take_file(path)}, folder=False)
        files = {}
        for file in sorted(_walk(path)):
            files[file.relative_to(path).as_posix()] = self._take_file(file)
        shutil.rmtree(path, ignore_errors=True)
        return Artifact(files, folder=True)

    def place(self, artifact: Artifact, path: Path, workspace: Path) -> None:
        """Put an output where people and later steps find it, whole or not at all; whatever lay there goes.

        `workspace` is a folder on the same disk for what is not finished.
        """
        temporary = workspace / self._unique()
        temporary.parent.mkdir(parents=True, exist_ok=True)
        if artifact.folder:
            temporary.mkdir()
        for name, entry in sorted(artifact.files.items()):
            target = temporary / name if artifact.folder else temporary
            target.parent.mkdir(parents=True, exist_ok=True)
            self._place_file(entry, target)
        path.parent.mkdir(parents=True, exist_ok=True)
        replaced = None
        if path.is_dir() and not path.is_symlink():
            replaced = path.rename(workspace / self._unique())
        elif artifact.folder and (path.exists() or path.is_symlink()):
            path.unlink()
        temporary.rename(path)
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)

    def clean(self) -> None:
        """Remove what killed processes left behind."""
        for path in sorted(self._temporary.glob("*")):
            if _is_stale(path):
                with contextlib.suppress(OSError):
                    path.unlink()

    def actions(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(self._actions.glob("*.json")):
            yield path.stem, path

    def blobs(self) -> Iterator[Path]:
        yield from sorted(self._blobs.glob("??/*"))

    def _action_path(self, key: str) -> Path:
        return self._actions / f"{key}.json"

    def _record(self, path: Path, key: str, action: Action) -> None:
        body = action.to_json()
        text = canonical_json({"key": key, "action": body, "check": _seal(key, body)})
        self._write(path, memoryview(text.encode()))

    def _has(self, digest: str, size: int | None) -> bool:
        try:
            found = self.path(digest).stat().st_size
        except OSError:
            return False
        if size is None or found == size:
            return True
        self._discard(self.path(digest), f"blob {digest[:12]} has {found} bytes instead of {size}")
        return False

    def _take_file(self, path: Path) -> FileEntry:
        stat = path.stat()
        entry = FileEntry(_digest_of(path), stat.st_size, bool(stat.st_mode & 0o100))
        if self.check(entry.digest, entry.size):
            path.unlink()
            return entry
        target = self.path(entry.digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.chmod(0o444)
            path.rename(target)
        except OSError:  # another file system
            self._copy_in(path, target)
            path.unlink(missing_ok=True)
        return entry

    def _copy_in(self, path: Path, target: Path) -> None:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else b""
            self._write(target, memoryview(data))

    def _place_file(self, entry: FileEntry, target: Path) -> None:
        if not self.check(entry.digest, entry.size):
            raise BlobMissing(f"blob {entry.digest} is not in the store", hint="build again: it is made anew")
        source = self.path(entry.digest)
        if entry.size >= LINK_FROM and not entry.executable:
            try:
                os.link(source, target)
                return
            except OSError:  # another file system, or one without links
                pass
        shutil.copyfile(source, target)
        target.chmod(0o755 if entry.executable else 0o644)

    def _write(self, target: Path, data: memoryview) -> None:
        self._temporary.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._temporary / self._unique()
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o444)
        temporary.rename(target)

    def _unique(self) -> str:
        return f"{socket.gethostname()}.{os.getpid()}.{next(self._counter)}.{time.time_ns()}"

    def _mark_used(self, path: Path) -> None:
        """Garbage collection goes by the time of last use; an hour's precision saves writes."""
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _USED_AGAIN_SECONDS:
                os.utime(path)

    def _discard(self, path: Path, why: str) -> None:
        self.notes.append(f"store: {why}; it is removed and counts as absent")
        with contextlib.suppress(OSError):
            path.unlink()


def _seal(key: str, body: object) -> str:
    return digest_bytes(canonical_json([key, body]).encode())


def _read_action(text: bytes, key: str) -> Action | None:
    try:
        data = json.loads(text)
        if data["key"] != key or data["check"] != _seal(key, data["action"]):
            return None
        return Action.from_json(data["action"])
    except (ValueError, KeyError, TypeError, AssertionError):
        return None


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _walk(folder: Path) -> Iterator[Path]:
    for base, _, names in os.walk(folder):
        for name in names:
            yield Path(base) / name


def _is_stale(path: Path) -> bool:
    """Whether the writer of a temporary file is gone."""
    host, _, rest = path.name.rpartition(".")[0].rpartition(".")[0].rpartition(".")
    if host == socket.gethostname() and rest.isdigit():
        return not _is_alive(int(rest))
    try:
        return time.time() - path.stat().st_mtime > _STALE_SECONDS
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
