"""What a step leaves behind, by content: files, folders, and the record of one finished action."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field


def canonical_json(value: object) -> str:
    """The one text of a JSON value: sorted keys, no spaces, no NaN; anything that is not JSON is refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_bytes(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_json(value: object) -> str:
    return digest_bytes(canonical_json(value).encode())


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file by content. Of the mode only the executable bit is kept."""

    digest: str
    size: int
    executable: bool = False

    def to_json(self) -> list[object]:
        return [self.digest, self.size, self.executable]

    @staticmethod
    def from_json(data: list[object]) -> FileEntry:
        digest, size, executable = data
        assert isinstance(digest, str) and isinstance(size, int) and isinstance(executable, bool)
        return FileEntry(digest, size, executable)


@dataclass(frozen=True, slots=True)
class Artifact:
    """One output: a file (a single entry under the empty name) or a folder (entries by relative path)."""

    files: Mapping[str, FileEntry]
    folder: bool

    @property
    def digest(self) -> str:
        if self.folder:
            return digest_json({name: entry.to_json() for name, entry in self.files.items()})
        return self.files[""].digest

    def member(self, name: str) -> str | None:
        """Digest of one file of a folder."""
        entry = self.files.get(name)
        return entry.digest if entry else None

    def to_json(self) -> dict[str, object]:
        entries = {name: entry.to_json() for name, entry in sorted(self.files.items())}
        return {"folder": self.folder, "files": entries}

    @staticmethod
    def from_json(data: dict[str, object]) -> Artifact:
        files = data["files"]
        assert isinstance(files, dict)
        entries = {name: FileEntry.from_json(entry) for name, entry in files.items()}
        return Artifact(entries, bool(data["folder"]))


@dataclass(frozen=True, slots=True)
class Action:
    """A finished step by its key: what it made, and the blobs that its outputs refer to."""

    outputs: Mapping[str, Artifact]
    blobs: tuple[str, ...] = ()
    log: str = ""
    """Digest of the log's text."""
    seconds: float = field(default=0.0, compare=False)
    """How long the worker took where it ran; told to people, read by no step."""

    def digests(self) -> set[str]:
        """Every blob that has to exist for the action to be usable."""
        found = {entry.digest for artifact in self.outputs.values() for entry in artifact.files.values()}
        return found | set(self.blobs)

    def to_json(self) -> dict[str, object]:
        return {
            "outputs": {name: artifact.to_json() for name, artifact in sorted(self.outputs.items())},
            "blobs": sorted(self.blobs),
            "log": self.log,
            "seconds": round(self.seconds, 3),
        }

    @staticmethod
    def from_json(data: Mapping[str, object]) -> Action:
        outputs, blobs, seconds = data["outputs"], data["blobs"], data["seconds"]
        assert isinstance(outputs, dict) and isinstance(blobs, list) and isinstance(seconds, (int, float))
        artifacts = {name: Artifact.from_json(artifact) for name, artifact in outputs.items()}
        return Action(artifacts, tuple(str(b) for b in blobs), str(data["log"]), float(seconds))
