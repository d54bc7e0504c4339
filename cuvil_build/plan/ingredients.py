"""What a step's result depends on, and the key that is its digest."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cuvil_build.errors import Internal, MissingFile
from cuvil_build.plan.node import Node
from cuvil_build.steps.artifact import Action, canonical_json, digest_bytes, digest_json
from cuvil_build.steps.step import StepKind

ORCHESTRATION = frozenset(
    (
        "__init__.py",
        "__main__.py",
        "api.py",
        "catalog.py",
        "cli",
        "config",
        "execute",
        "paths.py",
        "plan",
        "store",
    )
)
"""Parts of `cuvil_build` that decide when a step runs and never what it makes."""

_PACKAGE = Path(__file__).resolve().parent.parent
_SETTLED_NS = 50_000_000
"""A file written less than this before it was read may be written again within the clock's tick, with the
same size and time; its digest is not remembered."""


class FileDigests:
    """SHA-256 of files, remembered by size, mtime and inode."""

    def __init__(self, memory: Path | None = None) -> None:
        self._memory = memory
        self._known: dict[str, list[object]] = _read_json(memory) if memory else {}
        self._changed = False
        self._now = time.time_ns()
        self.seen: dict[str, tuple[list[int], str]] = {}
        """Everything asked for in this process: path -> ([size, mtime, inode], digest)."""

    def of(self, path: Path) -> str:
        name = str(path)
        if name in self.seen:
            return self.seen[name][1]
        try:
            stat = path.stat()
            known = self._known.get(name)
            mark = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
            if known and known[0] == mark:
                digest = str(known[1])
            else:
                digest = _digest_file(path)
                self._remember(name, mark, digest)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise MissingFile(f"'{path}' is not a file that can be read") from None
        self.seen[name] = (mark, digest)
        return digest

    def save(self) -> None:
        if self._memory is None or not self._changed:
            return
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._memory.with_name(self._memory.name + f".{os.getpid()}")
        temporary.write_text(json.dumps(self._known))
        temporary.replace(self._memory)

    def _remember(self, name: str, mark: list[int], digest: str) -> None:
        if mark[1] < self._now - _SETTLED_NS:
            self._known[name] = [mark, digest]
            self._changed = True
        elif self._known.pop(name, None):
            self._changed = True


def code_files(kind: StepKind) -> list[Path]:
    """The sources of ours that the kind's results depend on."""
    if kind.code == ():
        return []
    if kind.code is not None:
        return sorted({file for part in kind.code for file in _sources(_PACKAGE / part)})
    skipped = ORCHESTRATION | {"steps", "data", "__pycache__"}
    parts = [path for path in _PACKAGE.iterdir() if path.name not in skipped]
    return sorted({*_step_files(kind), *(file for part in parts for file in _sources(part))})


def code_digest(kind: StepKind, digests: FileDigests) -> str:
    """Of names below the package and contents: the same wherever the package lies."""
    rows = [[str(path.relative_to(_PACKAGE)), digests.of(path)] for path in code_files(kind)]
    return digest_json(rows) if rows else ""


def package_versions(names: Iterable[str]) -> dict[str, str]:
    return {name: _package_version(name) for name in sorted(names)}


@cache
def _package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def environment(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str | None]:
    """Digests, since values may be secrets and ingredients are kept."""
    return {name: digest_bytes(environ[name].encode()) if name in environ else None for name in sorted(names)}


def static_ingredients(
    kind: StepKind,
    params: Mapping[str, object],
    files: Mapping[str, Path],
    tools: Mapping[str, str],
    digests: FileDigests,
    environ: Mapping[str, str],
) -> dict[str, object]:
    """Everything but the digests of inputs that other steps make. A JSON value of plain types."""
    try:
        plain = json.loads(canonical_json(dict(params)))
    except (TypeError, ValueError) as error:
        raise Internal(f"params of step '{kind.name}' are not JSON: {error}") from None
    return {
        "kind": kind.name,
        "code": code_digest(kind, digests),
        "params": plain,
        "files": {name: digests.of(path) for name, path in sorted(files.items())},
        "env": environment(kind.env, environ),
        "tools": dict(sorted({**tools, **package_versions(kind.packages)}.items())),
    }


def input_digests(node: Node, actions: Mapping[str, Action]) -> dict[str, str]:
    """Digest of every input's content; `actions` has all steps that the node reads."""
    digests = {}
    for name, source in node.inputs.items():
        artifact = actions[source.node].outputs[source.output]
        member = artifact.member(source.member) if source.member else artifact.digest
        digests[name] = member or "absent"
    return digests


def complete(static: Mapping[str, object], inputs: Mapping[str, str]) -> dict[str, object]:
    """All ingredients: the static ones and the digests of the inputs."""
    return {**static, "inputs": dict(sorted(inputs.items()))}


def key_of(ingredients: Mapping[str, object]) -> str:
    return digest_json(ingredients)


def _step_files(kind: StepKind) -> list[Path]:
    """The kind's own files below `steps/`, and what its worker may share with others: no other kind's."""
    steps = _PACKAGE / "steps"
    kinds = {path.stem for path in steps.glob("*.py")} - {"step", "artifact", "__init__", kind.name}
    return [path for path in _sources(steps) if path.stem not in kinds]


def _sources(part: Path) -> list[Path]:
    if part.is_file():
        return [part]
    if not part.is_dir():
        raise Internal(f"a step's code names '{part.name}', which is not in cuvil_build")
    return [p for p in part.rglob("*") if p.is_file() and p.suffix != ".pyc" and "__pycache__" not in p.parts]


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path) -> dict[str, list[object]]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
