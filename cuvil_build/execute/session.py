"""ninja and the step server while a build runs, and how both end in every case."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

from cuvil_build.errors import Internal
from cuvil_build.execute.events import Ended, Listener, Started, from_message
from cuvil_build.execute.ninja import start_ninja
from cuvil_build.execute.records import Layout
from cuvil_build.store.local import LocalStore

_MESSAGE_BYTES = 1 << 20
_DRAIN_SECONDS = 2.0
_GRACE_SECONDS = 3.0
_START = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from cuvil_build.execute.server import main
main(sys.argv[2:])
"""


class Session:
    """A context manager; the server starts with the first phase that runs anything."""

    def __init__(self, layout: Layout, store: LocalStore, listen: Listener, lock: int) -> None:
        self._layout = layout
        self._store = store
        self._listen = listen
        self._lock = lock
        # socket paths are limited to about 100 bytes, so it cannot lie in the project
        self._folder = ""
        self._server: subprocess.Popen[bytes] | None = None
        self._events: socket.socket | None = None
        self._ninja: subprocess.Popen[bytes] | None = None
        self._running: set[str] = set()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing of the build outlives it: ninja first, so that it starts nothing new."""
        if self._ninja is not None:
            _end(self._ninja, signal.SIGINT)
        if self._server is not None:
            assert self._server.stdin is not None
            self._server.stdin.close()
            _end(self._server, signal.SIGTERM)
        if self._events is not None:
            self._events.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, phase: int, jobs: int, keep_going: bool) -> None:
        """Run one ninja file to its end. Failed steps are told through events; a ninja that fails without one
        is a bug of ours."""
        self._start_server()
        failed = False
        path = str(Path(self._folder) / "s")
        self._ninja = start_ninja(self._layout, phase, jobs, keep_going, path, [self._lock])
        output = b""
        assert self._ninja.stdout is not None and self._events is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._ninja.stdout, selectors.EVENT_READ)
            selector.register(self._events, selectors.EVENT_READ)
            open_ = True
            while open_:
                for key, _ in selector.select():
                    if key.fileobj is self._events:
                        failed |= self._hear()
                    elif chunk := os.read(self._ninja.stdout.fileno(), 65536):
                        output += chunk
                    else:
                        open_ = False
        code = self._ninja.wait()
        self._ninja.stdout.close()
        self._ninja = None
        failed |= self._drain()
        log = self._layout.cuvil / "logs" / f"ninja-phase{phase}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(output)
        if code != 0 and not failed:
            last = output.decode(errors="replace").strip()[-2000:]
            raise Internal(f"ninja ended with {code} in phase {phase}, and no step failed:\n{last}")

    def _start_server(self) -> None:
        if self._server is not None:
            if self._server.poll() is None:
                return
            raise Internal(f"the step server ended with {self._server.returncode}", hint=self._log_hint())
        self._folder = tempfile.mkdtemp(prefix="cuvil-")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(Path(self._folder) / "s"))
        listener.listen(256)
        self._events, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [
            str(self._layout.root),
            str(self._store.folder),
            str(self._store.base_folder or ""),
            str(listener.fileno()),
            str(theirs.fileno()),
        ]
        log = self._layout.cuvil / "logs" / "server.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path), *arguments],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                # a set that leaks its order into an output shall not make it differ between two builds
                env={**os.environ, "PYTHONHASHSEED": "0"},
                start_new_session=True,
                pass_fds=(listener.fileno(), theirs.fileno(), self._lock),
            )
        listener.close()
        theirs.close()

    def _hear(self) -> bool:
        """Take one event; whether it is a failure."""
        assert self._events is not None
        message = self._events.recv(_MESSAGE_BYTES)
        if not message:
            raise Internal("the step server ended", hint=self._log_hint())
        event = from_message(json.loads(message))
        if isinstance(event, Started):
            self._running.add(event.step)
        if isinstance(event, Ended):
            self._running.discard(event.step)
        if event is not None:
            self._listen(event)
        return isinstance(event, Ended) and event.status == "failed"

    def _drain(self) -> bool:
        """Events that were on their way when ninja ended: what a step reports before its client is told, and
        crashes, which the server tells when it has reaped the process."""
        assert self._events is not None
        failed = False
        until = time.monotonic() + _DRAIN_SECONDS
        while True:
            patience = max(0.0, until - time.monotonic()) if self._running else 0.0
            if not select.select([self._events], [], [], patience)[0]:
                break
            failed |= self._hear()
        self._running.clear()
        return failed

    def _log_hint(self) -> str:
        return f"its log is {(self._layout.cuvil / 'logs' / 'server.log').relative_to(self._layout.root)}"


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
