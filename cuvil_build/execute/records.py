"""What the project folder remembers of each step: its last ingredients and where its outputs lie."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.errors import BlobMissing
from cuvil_build.plan.node import Node, place_of
from cuvil_build.steps.artifact import Action, Artifact, canonical_json, digest_json
from cuvil_build.store.local import LocalStore

Stamp = tuple[int, int]
"""Size and mtime of a placed file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Folders below `.cuvil/`. All names that ninja sees are relative to the project."""

    root: Path

    @property
    def cuvil(self) -> Path:
        return self.root / ".cuvil"

    @property
    def workspace(self) -> Path:
        """What is not finished; emptied when a build starts."""
        return self.cuvil / "tmp"

    @property
    def builds(self) -> Path:
        return self.cuvil / "builds"

    @property
    def nodes(self) -> Path:
        """The planned nodes, for the processes that run them."""
        return self.cuvil / "nodes.json"

    def record(self, step: str) -> Path:
        return self.cuvil / "records" / f"{place_of(step)}.json"

    def log(self, step: str) -> Path:
        return self.cuvil / "logs" / f"{place_of(step)}.log"

    @staticmethod
    def stamp(step: str) -> str:
        """ninja's output of the step: digests of what it made, rewritten only when one of them changed."""
        return f".cuvil/stamps/{place_of(step)}"

    @staticmethod
    def trigger(step: str) -> str:
        """ninja's input that makes the step run: rewritten when its own ingredients changed."""
        return f".cuvil/triggers/{place_of(step)}"


@dataclass(frozen=True, slots=True)
class Record:
    """One step as it was last brought up to date."""

    key: str
    ingredients: Mapping[str, object]
    outputs: Mapping[str, Artifact]
    placed: Mapping[str, Stamp]

    @property
    def static(self) -> str:
        """Digest of the ingredients without the inputs."""
        return static_digest({name: value for name, value in self.ingredients.items() if name != "inputs"})

    def to_json(self) -> dict[str, object]:
        return {
            "key": self.key,
            "ingredients": dict(self.ingredients),
            "outputs": {name: artifact.to_json() for name, artifact in self.outputs.items()},
            "placed": {path: list(stamp) for path, stamp in self.placed.items()},
        }


def static_digest(static: Mapping[str, object]) -> str:
    return digest_json(dict(static))


def read_record(layout: Layout, step: str) -> Record | None:
    """The record; None when there is none that can be read."""
    try:
        data = json.loads(layout.record(step).read_bytes())
        return Record(
            data["key"],
            data["ingredients"],
            {name: Artifact.from_json(artifact) for name, artifact in data["outputs"].items()},
            {path: (int(size), int(mtime)) for path, (size, mtime) in data["placed"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        return None


def in_place(layout: Layout, node: Node, record: Record | None, key: str) -> bool:
    """Whether the outputs of this key lie where they should and nobody touched them."""
    if record is None or record.key != key or set(record.outputs) != set(node.outputs):
        return False
    expected = {path for name, artifact in record.outputs.items() for path in _files(node, name, artifact)}
    if expected != set(record.placed):
        return False
    return all(_stamp(layout.root / path) == stamp for path, stamp in record.placed.items())


def settle(
    layout: Layout,
    store: LocalStore,
    node: Node,
    key: str,
    ingredients: Mapping[str, object],
    action: Action,
    before: Record | None,
) -> Record:
    """Put the outputs of a finished action in place and remember it. Outputs that lie there already with the
    same content are not touched, nor is the stamp when nothing changed: that is what stops ninja."""
    placed: dict[str, Stamp] = {}
    for name, artifact in sorted(action.outputs.items()):
        kept = _kept(layout, node, name, artifact, before)
        if kept is None:
            target = layout.root / node.outputs[name].rstrip("/")
            store.place(artifact, target, layout.workspace)
            kept = {path: _required_stamp(layout.root / path) for path in _files(node, name, artifact)}
        placed |= kept
    record = Record(key, ingredients, action.outputs, placed)
    write_file(layout, layout.record(node.id), canonical_json(record.to_json()))
    stamp = layout.root / layout.stamp(node.id)
    text = canonical_json({name: artifact.digest for name, artifact in action.outputs.items()})
    if not _holds(stamp, text):
        write_file(layout, stamp, text)
    return record


def write_file(layout: Layout, path: Path, text: str) -> None:
    """Whole or not at all."""
    layout.workspace.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = layout.workspace / f"{os.getpid()}.{path.name}"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except OSError:
        return False


def _kept(
    layout: Layout, node: Node, name: str, artifact: Artifact, before: Record | None
) -> dict[str, Stamp] | None:
    if before is None or before.outputs.get(name) != artifact:
        return None
    paths = _files(node, name, artifact)
    stamps = {path: before.placed.get(path) for path in paths}
    found: dict[str, Stamp] = {}
    for path, stamp in stamps.items():
        if stamp is None or _stamp(layout.root / path) != stamp:
            return None
        found[path] = stamp
    return found


def _files(node: Node, name: str, artifact: Artifact) -> list[str]:
    base = node.outputs[name].rstrip("/")
    return [f"{base}/{file}" if file else base for file in sorted(artifact.files)]


def _stamp(path: Path) -> Stamp | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _required_stamp(path: Path) -> Stamp:
    stamp = _stamp(path)
    if stamp is None:
        raise BlobMissing(f"'{path.name}' vanished while it was put in place", hint="build again")
    return stamp
