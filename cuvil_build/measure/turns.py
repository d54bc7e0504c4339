"""Times runtimes on the same inputs: each in a process of its own, taking turns call by call."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np

from cuvil_build.errors import CuvilError
from cuvil_build.measure.runtimes import Array, Feeds, check_kind, import_runtime

WARM_UP = 2
LOAD_LIMIT_S = 600.0
CALL_LIMIT_S = 600.0
REST_MS = 50.0
"""Before a timed call where there are several threads: the workers of the runtime whose turn it was spin on
for some milliseconds, on the core that the next one wants."""


def rest_of(threads: int, rest_ms: float | None = None) -> float:
    """Milliseconds of rest before each timed call: as asked for, or what that many threads need."""
    if rest_ms is not None:
        return rest_ms
    return REST_MS if threads > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Runner:
    """One row of a comparison: a runtime and what it loads."""

    label: str
    kind: str
    path: Path
    """A module's folder for `cuvil`, an ONNX file for the others."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one runtime did; `problem` is empty where all of it was measured."""

    label: str
    problem: str = ""
    median_ms: float = 0.0
    best_ms: float = 0.0
    ratio: float = 0.0
    """Of the medians, to the first runner's."""
    cold_ms: float = 0.0
    """From the start of loading to the first result; the Python import is not in it."""
    imported_mb: float | None = None
    peak_mb: float | None = None
    nbytes: int | None = None
    """Of what was loaded: a module's library and weights, a model's file, a compiled model."""
    error: float | None = None
    """Against the wanted outputs, relative to each output's largest magnitude."""
    calls_ms: tuple[float, ...] = ()


def compare_runtimes(
    runners: Sequence[Runner],
    feeds: Feeds,
    *,
    threads: int = 1,
    rounds: int = 20,
    rest_ms: float | None = None,
    want: Mapping[str, Array] | None = None,
) -> list[Timing]:
    """One row per runner, in order; a runner that fails is a row that says why.

    Calls are interleaved (A B C A B C ...), so that a machine whose speed drifts slows all of them alike.
    After a rest, each makes one call that is not timed: its threads have slept, and its caches are others'.
    Errors are against `want`, or against the first runner that works.
    """
    for runner in runners:
        check_kind(runner.kind)
    workers = [_Worker(runner, feeds, threads) for runner in runners]
    try:
        for _ in range(rounds + WARM_UP):
            for worker in workers:
                worker.call(rest_of(threads, rest_ms))
        for worker in workers:
            worker.finish()
        return _rows(workers, want)
    finally:
        for worker in workers:
            worker.close()


def _rows(workers: Sequence[_Worker], want: Mapping[str, Array] | None) -> list[Timing]:
    working = [w for w in workers if not w.problem]
    expected = want if want is not None else (working[0].outputs if working else {})
    base = statistics.median(working[0].calls[WARM_UP:]) if working else 1.0
    return [w.row(base, expected) for w in workers]


class _Worker:
    """The parent's end of one runtime's process."""

    def __init__(self, runner: Runner, feeds: Feeds, threads: int) -> None:
        context = get_context("spawn")
        self.runner = runner
        self.problem = ""
        self.cold = 0.0
        self.nbytes: int | None = None
        self.outputs: dict[str, Array] = {}
        self.calls: list[float] = []
        self.memory: tuple[float | None, float | None] = (None, None)
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, runner.kind, runner.path, threads, dict(feeds))
        self.process: SpawnProcess = context.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        answer = self._receive(LOAD_LIMIT_S, "while loading")
        if answer is not None:
            self.cold, self.nbytes, self.outputs = answer

    def call(self, rest_ms: float) -> None:
        if self.problem:
            return
        time.sleep(rest_ms / 1e3)
        self.pipe.send("again" if rest_ms else "go")
        answer = self._receive(CALL_LIMIT_S, "in a call")
        if answer is not None:
            self.calls.append(answer)

    def finish(self) -> None:
        if self.problem:
            return
        self.pipe.send("stop")
        answer = self._receive(CALL_LIMIT_S, "at its end")
        if answer is not None:
            self.memory = answer

    def close(self) -> None:
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def row(self, base: float, want: Mapping[str, Array]) -> Timing:
        if self.problem:
            return Timing(self.runner.label, self.problem)
        problem, error = largest_error(self.outputs, want)
        calls = self.calls[WARM_UP:]
        median = statistics.median(calls)
        return Timing(
            label=self.runner.label,
            problem=problem,
            median_ms=1e3 * median,
            best_ms=1e3 * min(calls),
            ratio=median / base,
            cold_ms=1e3 * self.cold,
            imported_mb=self.memory[0],
            peak_mb=self.memory[1],
            nbytes=self.nbytes,
            error=error,
            calls_ms=tuple(1e3 * c for c in calls),
        )

    def _receive(self, limit: float, when: str) -> Any:
        try:
            if not self.pipe.poll(limit):
                self.problem = f"no answer within {limit:.0f} s {when}"
                self.process.kill()
                return None
            status, answer = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.problem = f"the process died {when}"
            return None
        if status == "failed":
            self.problem = str(answer)
            return None
        return answer


def serve(pipe: Connection, kind: str, path: Path, threads: int, feeds: Feeds) -> None:
    """The child's whole life: load, answer, then one timed call for each `go`, and another before it for
    `again`."""
    try:
        runtime_class = import_runtime(kind)
        with tempfile.TemporaryDirectory() as folder:
            made = runtime_class.prepare(path, Path(folder))
            imported = _resident_mb("VmRSS")
            start = time.perf_counter()
            runtime = runtime_class(made, threads)
            outputs = runtime.run(feeds)
            cold = time.perf_counter() - start
            nbytes = made.stat().st_size if made.is_file() else None
        pipe.send(("ready", (cold, nbytes, {name: np.array(value) for name, value in outputs.items()})))
        while (asked := pipe.recv()) != "stop":
            if asked == "again":
                runtime.run(feeds)
            start = time.perf_counter()
            runtime.run(feeds)
            pipe.send(("ready", time.perf_counter() - start))
        pipe.send(("ready", (imported, _resident_mb("VmHWM"))))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return
    except CuvilError as error:
        pipe.send(("failed", error.message))
    except Exception as error:
        # Whatever a foreign runtime raises becomes its row; the others go on.
        text = str(error).strip().splitlines() or ["it said nothing"]
        pipe.send(("failed", f"{type(error).__name__}: {text[0][:300]}"))


def _resident_mb(key: str) -> float | None:
    """VmRSS or VmHWM of this process; the maximum of getrusage would include the parent's."""
    if not sys.platform.startswith("linux"):
        return None
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    return None


def largest_error(have: Mapping[str, Array], want: Mapping[str, Array]) -> tuple[str, float | None]:
    """(what can't be compared, the largest error relative to the largest magnitude)."""
    worst = 0.0
    for name, expected in want.items():
        if name not in have:
            return f"no output '{name}'", None
        array = np.asarray(have[name])
        if array.shape != expected.shape or array.dtype != expected.dtype:
            return (
                f"output '{name}' is {array.dtype}{array.shape}, expected {expected.dtype}{expected.shape}",
                None,
            )
        if not expected.size:
            continue
        a, b = array.astype(np.float64), expected.astype(np.float64)
        special = ~np.isfinite(a) | ~np.isfinite(b)
        if (special & ~((a == b) | (np.isnan(a) & np.isnan(b)))).any():
            return f"output '{name}' has NaN or Inf in other places", None
        a, b = np.where(special, 0.0, a), np.where(special, 0.0, b)
        worst = max(worst, float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-6)))
    return "", worst
