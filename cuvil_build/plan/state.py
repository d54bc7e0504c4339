"""The test for 'nothing to do': the standard library only, and no module of ours beside this one.

`.cuvil/state.json` has, for each command line that ended with everything up to date, all that its plan
read (files, listings, environment, paths that were absent) and all that it left behind.
"""

# pathlib takes a tenth of the time that the whole test may take
# ruff: noqa: PTH105, PTH110, PTH113, PTH116, PTH118, PTH207

from __future__ import annotations

import glob
import hashlib
import json
import os
import sys
import time
from typing import Any

VERSION = 1
KEPT = 8
_SETTLED_NS = 50_000_000
_ALWAYS = ("--force", "--format", "--format=json", "--help")
"""Options with which more than one line is wanted."""


def up_to_date(argv: list[str], environ: dict[str, str]) -> str | None:
    """The line to print when a `cuvil build` with these arguments has nothing to do."""
    root = _root_of(argv)
    if root is None or any(word in _ALWAYS for word in argv):
        return None
    state = read(root)
    entry = state.get(signature(argv))
    if not isinstance(entry, dict):
        return None
    try:
        if not _agrees(entry, root, environ):
            return None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    if entry.pop("touched", False):
        write(root, state)
    count = len(entry["variants"])
    return f"nothing to do ({count} variant{'' if count == 1 else 's'} up to date)"


def signature(argv: list[str]) -> str:
    """The arguments as one text."""
    return json.dumps(argv)


def read(root: str) -> dict[str, object]:
    try:
        with open(_path(root), encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict) or data.get("version") != VERSION or data.get("python") != sys.version:
        return {}
    entries = data.get("entries")
    return entries if isinstance(entries, dict) else {}


def write(root: str, entries: dict[str, object]) -> None:
    """The newest entries win; the file is replaced whole."""
    kept = dict(list(entries.items())[-KEPT:])
    temporary = f"{_path(root)}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({"version": VERSION, "python": sys.version, "entries": kept}, file)
    os.replace(temporary, _path(root))


def mark(path: str) -> list[int]:
    """What is compared first. A file that was written a moment ago gets a mark that never agrees, so that
    its content is compared: it may change again within one tick of the clock."""
    stat = os.stat(path)
    settled = stat.st_mtime_ns < time.time_ns() - _SETTLED_NS
    return [stat.st_size, stat.st_mtime_ns if settled else 0, stat.st_ino]


def listing(pattern: str) -> list[str]:
    """The files that a pattern matches, sorted."""
    return sorted(glob.glob(pattern, recursive=True))


def digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _agrees(entry: dict[str, object], root: str, environ: dict[str, str]) -> bool:
    base = os.path.realpath(root)
    for path, (size, mtime) in _items(entry, "outputs"):
        stat = os.stat(os.path.join(root, path))
        if stat.st_size != size or stat.st_mtime_ns != mtime:
            return False
    for name, value in _items(entry, "env"):
        if (digest_text(environ[name]) if name in environ else None) != value:
            return False
    for path, mtime in _items(entry, "folders"):
        if os.stat(os.path.join(root, path)).st_mtime_ns != mtime:
            return False
    prefixes = entry["prefixes"]
    assert isinstance(prefixes, dict)
    for prefix, names in prefixes.items():
        if sorted(name for name in environ if name.startswith(prefix)) != names:
            return False
    absent = entry["absent"]
    assert isinstance(absent, list)
    if any(os.path.exists(os.path.join(root, path)) for path in absent):
        return False
    for pattern, names in _items(entry, "globs"):
        # of an absolute root, as the entry was written
        if [os.path.relpath(p, base) for p in listing(os.path.join(base, pattern))] != names:
            return False
    return _files_agree(entry, root)


def _files_agree(entry: dict[str, object], root: str) -> bool:
    for path, row in _items(entry, "files"):
        full = os.path.join(root, path)
        stat = os.stat(full)
        if [stat.st_size, stat.st_mtime_ns, stat.st_ino] == row[0]:
            continue
        now = mark(full)
        if stat.st_size != row[0][0] or digest(full) != row[1]:
            return False
        row[0] = now
        entry["touched"] = True
    return True


def _items(entry: dict[str, object], name: str) -> list[tuple[str, Any]]:
    part = entry[name]
    assert isinstance(part, dict)
    return list(part.items())


def _root_of(argv: list[str]) -> str | None:
    """The project's folder as `-C` says; None when the arguments are more than this test can read."""
    root = "."
    for index, word in enumerate(argv):
        if word in ("-C", "--directory") and index + 1 < len(argv):
            root = argv[index + 1]
        elif word.startswith("--directory="):
            root = word.partition("=")[2]
        elif word.startswith("-C") and len(word) > 2:
            root = word[2:]
    return root if os.path.isfile(os.path.join(root, ".cuvil", "state.json")) else None


def _path(root: str) -> str:
    return os.path.join(root, ".cuvil", "state.json")
