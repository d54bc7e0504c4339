"""Work on items in processes of their own: one that crashes, hangs or eats memory costs its item alone."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

GIB = 1 << 30
TAIL = 65536
"""Bytes of what a process said that are kept when it dies."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one item."""

    item: str
    end: str
    """`done`, `crash` or `timeout`."""
    data: Any = None
    """What the work returned."""
    error: str = ""
    seconds: float = 0.0


Say = Callable[[str, Any], None]
"""`say("start", item)` before an item and `say("done", result)` behind it; the result is JSON."""
Start = Callable[[Sequence[str], int, int], int]
"""`start(items, write_end, errors)` gives the id of a process that works on the items in turn, says so on the
file descriptor `write_end`, and leaves its standard error in `errors`."""


def forked(work: Callable[[str], Any], memory: int = 3 * GIB) -> Start:
    """Forks of this process, with all that it has loaded."""

    def start(items: Sequence[str], write_end: int, errors: int) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process:
            return process
        code = 1
        try:
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            work_through(items, work, write_end)
            code = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)

    return start


def work_through(items: Sequence[str], work: Callable[[str], Any], write_end: int) -> None:
    """The inside of a worker process."""
    for item in items:
        _say(write_end, "start", item)
        _say(write_end, "done", work(item))


def _say(write_end: int, word: str, data: Any) -> None:
    line = json.dumps([word, data]).encode() + b"\n"
    while line:
        line = line[os.write(write_end, line) :]


@dataclass
class _Running:
    items: list[str]
    """Not finished yet, in order."""
    process: int
    read_end: int
    errors: Any
    text: bytes = b""
    began: float = 0.0
    """When the current item did; 0 between items."""
    killed: bool = False
    found: list[Outcome] = field(default_factory=list)


def work_apart(
    batches: Sequence[Sequence[str]], start: Start, *, jobs: int = 2, limit_s: float = 60.0
) -> Iterator[Outcome]:
    """Each batch in a process; after a crash or a timeout the rest of a batch goes on in a new one."""
    waiting = [list(b) for b in batches if b]
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_begin(waiting.pop(0), start))
            ready, _, _ = select.select([r.read_end for r in running], [], [], 0.2)
            for worker in list(running):
                if worker.read_end in ready:
                    ended = _listen(worker)
                else:
                    ended = False
                yield from _taken(worker)
                if ended:
                    running.remove(worker)
                    yield from _buried(worker, limit_s)
                    if worker.items:
                        waiting.insert(0, worker.items)
                elif worker.began and time.monotonic() - worker.began > limit_s and not worker.killed:
                    worker.killed = True
                    _kill(worker.process)
    finally:
        for worker in running:
            _kill(worker.process)
            os.waitpid(worker.process, 0)
            os.close(worker.read_end)


def _begin(items: list[str], start: Start) -> _Running:
    read_end, write_end = os.pipe()
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process: `_buried` closes it
    process = start(items, write_end, errors.fileno())
    os.close(write_end)
    return _Running(items, process, read_end, errors, began=time.monotonic())


def _listen(worker: _Running) -> bool:
    """Take what a worker says; whether it has ended."""
    data = os.read(worker.read_end, 1 << 16)
    worker.text += data
    *lines, worker.text = worker.text.split(b"\n")
    for line in lines:
        word, content = json.loads(line)
        now = time.monotonic()
        if word == "start":
            worker.began = now
            continue
        item = worker.items.pop(0)
        worker.found.append(Outcome(item, "done", content, seconds=now - worker.began))
        worker.began = now
    return not data


def _taken(worker: _Running) -> Iterator[Outcome]:
    yield from worker.found
    worker.found.clear()


def _buried(worker: _Running, limit_s: float) -> Iterator[Outcome]:
    """The item that a process died of, if it did."""
    os.close(worker.read_end)
    _, status = os.waitpid(worker.process, 0)
    worker.errors.seek(0, os.SEEK_END)
    worker.errors.seek(max(0, worker.errors.tell() - TAIL))
    said = worker.errors.read().decode(errors="replace").strip()
    worker.errors.close()
    if not worker.items:
        return
    item, seconds = worker.items.pop(0), time.monotonic() - worker.began
    if worker.killed:
        yield Outcome(item, "timeout", error=f"no end within {limit_s:g} s", seconds=seconds)
        return
    code = os.waitstatus_to_exitcode(status)
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    yield Outcome(item, "crash", error=f"{how}\n{said}".strip(), seconds=seconds)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
