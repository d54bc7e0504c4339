"""One step in its own process: key, store, worker, outputs."""

from __future__ import annotations

import importlib
import os
import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from cuvil_build.errors import (
    BlobMissing,
    CuvilError,
    InputChanged,
    Internal,
    MissingOutput,
    as_file_access,
    error_name,
)
from cuvil_build.execute.records import Layout, Record, in_place, read_record, settle
from cuvil_build.plan.ingredients import complete, input_digests, key_of
from cuvil_build.plan.node import Node
from cuvil_build.steps.artifact import Action
from cuvil_build.steps.step import Job
from cuvil_build.store.local import LocalStore

PASSED = ("PATH", "CC", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "CUVIL_ZIG_CACHE")
"""Variables that every worker may see: where tools and scratch space are. No result depends on them."""
_FIXED = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended."""

    status: str
    """`ok`: the worker ran; `reused`: the store had it after all; `failed`."""
    error: str = ""
    name: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """What the planner hands to the processes that run steps."""

    nodes: Mapping[str, Node]
    marks: Mapping[str, list[int]]
    """Size, mtime and inode of every source file when its digest was taken, by path."""
    forced: frozenset[str]
    """Steps that run even if the store knows them."""

    def to_json(self) -> dict[str, object]:
        return {
            "nodes": [node.to_json() for node in self.nodes.values()],
            "marks": dict(self.marks),
            "forced": sorted(self.forced),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Planned:
        nodes = [Node.from_json(node) for node in data["nodes"]]
        return Planned({node.id: node for node in nodes}, data["marks"], frozenset(data["forced"]))


def perform(layout: Layout, store: LocalStore, planned: Planned, step: str, log: TextIO) -> Outcome:
    """Bring one step up to date; its inputs are. Whatever goes wrong ends in the outcome, with the traceback
    in the log."""
    node = planned.nodes[step]
    try:
        return _perform(layout, store, planned, node, log)
    except CuvilError as error:
        traceback.print_exc(file=log)
        return Outcome("failed", str(error), error_name(type(error)), error.exit_code)
    except Exception as error:  # the process ends with it; the driver shows it as a bug of ours
        traceback.print_exc(file=log)
        refused = as_file_access(error)
        if refused is not None:
            return Outcome("failed", str(refused), error_name(type(refused)), refused.exit_code)
        first = (str(error).splitlines() or [""])[0]
        bug = Internal(
            f"step '{node.title}': {type(error).__name__}: {first}".rstrip(": "),
            hint=f"a bug of ours; the traceback is in {layout.log(node.id).relative_to(layout.root)}",
        )
        return Outcome("failed", str(bug), error_name(type(bug)), bug.exit_code)


def _perform(layout: Layout, store: LocalStore, planned: Planned, node: Node, log: TextIO) -> Outcome:
    records = {source.node: _finished(layout, source.node) for source in node.inputs.values()}
    actions = {step: Action(record.outputs) for step, record in records.items()}
    ingredients = complete(node.static, input_digests(node, actions))
    key = key_of(ingredients)
    before = read_record(layout, node.id)
    known = None if node.id in planned.forced else store.find(key)
    if known is not None and (in_place(layout, node, before, key) or store.sound(known)):
        settle(layout, store, node, key, ingredients, known, before)
        return Outcome("reused")
    inherited = set() if node.sealed else _inherited(store, records)
    action = _run(layout, store, planned, node, inherited, log)
    store.record(key, action)
    settle(layout, store, node, key, ingredients, action, before)
    return Outcome("ok")


def _run(
    layout: Layout, store: LocalStore, planned: Planned, node: Node, inherited: set[str], log: TextIO
) -> Action:
    scratch = layout.workspace / f"step.{os.getpid()}"
    shutil.rmtree(scratch, ignore_errors=True)
    outputs = {name: scratch / name / Path(path.rstrip("/")).name for name, path in node.outputs.items()}
    for name, path in outputs.items():
        (path if node.outputs[name].endswith("/") else path.parent).mkdir(parents=True)
    worker = load_worker(node.worker)
    _close_environment(node)
    store.forget()
    began = time.monotonic()
    worker(Job(node.id, node.params, _inputs(layout, planned, node), outputs, store, _logger(log)))
    seconds = time.monotonic() - began
    check_files(layout, planned, node, outputs)
    blobs = store.touched | inherited
    taken = {
        name: store.take(path, node.outputs[name].endswith("/")) for name, path in sorted(outputs.items())
    }
    shutil.rmtree(scratch, ignore_errors=True)
    log.flush()
    return Action(taken, tuple(sorted(blobs)), store.put(_read(layout.log(node.id))), seconds)


def _inherited(store: LocalStore, records: Mapping[str, Record]) -> set[str]:
    """Blobs that the inputs refer to, since the outputs may refer to them as well."""
    actions = [store.find(record.key) for record in records.values()]
    return {blob for action in actions if action for blob in action.blobs}


def load_worker(path: str) -> Callable[[Job], None]:
    module, _, name = path.partition(":")
    worker = getattr(importlib.import_module(module), name, None)
    if not callable(worker):
        raise Internal(f"step worker '{path}' is not a function")
    return worker  # type: ignore[no-any-return]


def _finished(layout: Layout, step: str) -> Record:
    record = read_record(layout, step)
    if record is None:
        raise BlobMissing(f"step '{step}' has no outputs", hint="build again: it is made anew")
    return record


def _inputs(layout: Layout, planned: Planned, node: Node) -> dict[str, Path]:
    found = {name: layout.root / path for name, path in node.files.items()}
    for name, source in node.inputs.items():
        base = layout.root / planned.nodes[source.node].outputs[source.output].rstrip("/")
        found[name] = base / source.member if source.member else base
    return dict(sorted(found.items()))


def check_files(layout: Layout, planned: Planned, node: Node, outputs: Mapping[str, Path]) -> None:
    """After the worker returned: all outputs are there, and no source was edited meanwhile."""
    for name, path in sorted(outputs.items()):
        made = any(path.iterdir()) if path.is_dir() else path.is_file()
        if not made or path.is_dir() != node.outputs[name].endswith("/"):
            raise MissingOutput(
                f"step '{node.title}' did not write its output '{name}'", hint="a bug of ours"
            )
    for path_text in sorted(node.files.values()):
        stat = (layout.root / path_text).stat()
        if [stat.st_size, stat.st_mtime_ns, stat.st_ino] != planned.marks.get(path_text):
            raise InputChanged(
                f"'{path_text}' changed while step '{node.title}' was reading it", hint="build again"
            )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _close_environment(node: Node) -> None:
    kept = {name: os.environ[name] for name in (*PASSED, *node.env) if name in os.environ}
    os.environ.clear()
    os.environ.update({**kept, **_FIXED})


def _logger(log: TextIO) -> Callable[[str], None]:
    def write(text: str) -> None:
        print(text, file=log, flush=True)

    return write
