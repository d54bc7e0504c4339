"""The step server: one warm process per build that forks itself once for every step.

It is told of steps through a Unix socket, and ends when its parent does: whoever holds the other end of
its standard input. Importing happens in the server, running in the forks, so that every fork starts warm.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

from cuvil_build.errors import Internal, StepCrashed, error_name
from cuvil_build.execute.events import Ended, Started
from cuvil_build.execute.perform import Outcome, Planned, perform
from cuvil_build.execute.records import Layout
from cuvil_build.plan.node import Node
from cuvil_build.store.local import LocalStore
from cuvil_build.store.overlay import open_store

_REQUEST_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Child:
    step: str
    title: str
    began: float


@dataclass(slots=True)
class Server:
    """Accepts steps, forks, reaps."""

    layout: Layout
    store: LocalStore
    listener: socket.socket
    events: socket.socket
    children: dict[int, Child] = field(default_factory=dict)
    _planned: Planned | None = None
    _planned_mark: tuple[int, int] = (0, 0)
    _imported: set[str] = field(default_factory=set)

    def serve(self) -> None:
        """Until the parent is gone."""
        wake_read, wake_write = socket.socketpair()
        for end in (wake_read, wake_write):
            end.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with selectors.DefaultSelector() as selector:
            for source in (sys.stdin.fileno(), self.listener, wake_read):
                selector.register(source, selectors.EVENT_READ)
            try:
                while self._turn(selector, wake_read):
                    pass
            finally:
                self._kill_children()
                self._remove_socket()

    def _turn(self, selector: selectors.BaseSelector, wake: socket.socket) -> bool:
        ready = {key.fileobj for key, _ in selector.select()}
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                wake.recv(4096)
            self._reap()
        if sys.stdin.fileno() in ready:  # nothing is ever written to it: this is its end
            return False
        if self.listener in ready:
            connection, _ = self.listener.accept()
            with connection:
                self._answer(connection)
        return True

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_REQUEST_SECONDS)
        try:
            step = connection.makefile("rb").readline().decode().strip()
        except OSError:
            return
        planned = self._read_planned()
        node = planned.nodes.get(step)
        if node is None:
            connection.sendall(f"1\nno step '{step}' is planned\n".encode())
            return
        try:
            self._import_for(node)
        except Exception:
            # the fork imports it again and reports the failure where the step's log is
            self._imported.add(node.worker)
        began = time.monotonic()
        self._send(Started(step, node.title, began))
        pid = os.fork()
        if pid == 0:
            self._become(node, planned, connection, began)
        self.children[pid] = Child(step, node.title, began)

    def _become(self, node: Node, planned: Planned, connection: socket.socket, began: float) -> NoReturn:
        """What a fork does; it never returns into the server's loop."""
        code = 1
        try:
            _detach()
            self.listener.close()
            connection.settimeout(None)
            log_file = self.layout.log(node.id)
            log_file.parent.mkdir(parents=True, exist_ok=True)
            with log_file.open("w", encoding="utf-8") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                outcome = perform(self.layout, self.store, planned, node.id, log)
                for note in self.store.notes:
                    print(note, file=log)
            self._report(node, outcome, began)
            connection.sendall(f"{outcome.exit_code}\n{outcome.error}".encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _report(self, node: Node, outcome: Outcome, began: float) -> None:
        now = time.monotonic()
        log = str(self.layout.log(node.id).relative_to(self.layout.root))
        self._send(Ended(node.id, node.title, at=now, seconds=now - began, log=log, **asdict(outcome)))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.children.pop(pid, None)
            if child is not None and status != 0:
                self._report_crash(child, status)

    def _report_crash(self, child: Child, status: int) -> None:
        log = str(self.layout.log(child.step).relative_to(self.layout.root))
        crash = describe_crash(child.title, status, log)
        now = time.monotonic()
        failed = Outcome("failed", str(crash), error_name(StepCrashed), crash.exit_code)
        self._send(
            Ended(child.step, child.title, at=now, seconds=now - child.began, log=log, **asdict(failed))
        )

    def _read_planned(self) -> Planned:
        """Read again when the driver has written the nodes of the next phase."""
        stat = self.layout.nodes.stat()
        mark = (stat.st_mtime_ns, stat.st_ino)
        if self._planned is None or mark != self._planned_mark:
            self._planned = Planned.from_json(json.loads(self.layout.nodes.read_bytes()))
            self._planned_mark = mark
        return self._planned

    def _import_for(self, node: Node) -> None:
        for module in (*node.preload, node.worker.partition(":")[0]):
            if module not in self._imported:
                importlib.import_module(module)
                self._imported.add(module)

    def _send(self, event: Started | Ended) -> None:
        message = {"event": type(event).__name__.lower(), **asdict(event)}
        with contextlib.suppress(OSError):  # the driver is gone: so are we in a moment
            self.events.send(json.dumps(message).encode())

    def _kill_children(self) -> None:
        for pid in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _remove_socket(self) -> None:
        """The driver's work, unless it was killed."""
        path = Path(self.listener.getsockname())
        with contextlib.suppress(OSError):
            path.unlink()
            path.parent.rmdir()


def describe_crash(title: str, status: int, log: str) -> StepCrashed:
    """From a wait status to the error of the step."""
    if os.WIFSIGNALED(status):
        what = f"was ended by {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        what = f"ended with {os.waitstatus_to_exitcode(status)} and no answer"
    return StepCrashed(f"step '{title}' {what}", hint=f"its log is {log}")


def _detach() -> None:
    """A process group of its own, so that what the step starts ends with it; and it ends with the server."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def main(arguments: list[str]) -> None:
    """`root store base-store listener-fd events-fd`; the base store is empty where there is none."""
    root, store, base, listener, events = arguments
    layout = Layout(Path(root))
    if not layout.cuvil.is_dir():
        raise Internal(f"'{layout.cuvil}' is not there")
    server = Server(
        layout,
        open_store(Path(store), Path(base) if base else None),
        socket.socket(fileno=int(listener)),
        socket.socket(fileno=int(events)),
    )
    server.serve()
