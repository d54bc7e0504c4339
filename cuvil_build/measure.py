"""Times runtimes on the same inputs: each in a process of its own, taking turns call by call."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cuvil_build.errors import UsageMistake, nearest

Array: TypeAlias = NDArray[Any]
Feeds: TypeAlias = Mapping[str, Array]

WARM_UP = 2
LOAD_LIMIT_S = 600.0
CALL_LIMIT_S = 600.0


class UnknownRuntime(UsageMistake):
    """A runtime to compare with that we do not know."""


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
    error: float | None = None
    """Against the wanted outputs, relative to each output's largest magnitude."""
    calls_ms: tuple[float, ...] = ()


class _Runtime(Protocol):
    def __init__(self, path: Path, threads: int) -> None: ...

    def run(self, feeds: Feeds) -> dict[str, Array]: ...


class _Cuvil:
    needs = "cuvil"

    def __init__(self, path: Path, threads: int) -> None:
        import cuvil

        self._module = cuvil.load(path, threads=threads)

    def run(self, feeds: Feeds) -> dict[str, Array]:
        return dict(self._module.run(feeds))


class _OnnxRuntime:
    needs = "onnxruntime"

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, feeds: Feeds) -> dict[str, Array]:
        return dict(zip(self._names, self._session.run(self._names, dict(feeds))))


class _OpenVino:
    needs = "openvino"

    def __init__(self, path: Path, threads: int) -> None:
        import openvino

        # Its own choice of bfloat16 on some CPUs would compare two precisions.
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        compiled = openvino.Core().compile_model(str(path), "CPU", settings)
        self._names = [sorted(output.names)[0] for output in compiled.outputs]
        self._request = compiled.create_infer_request()

    def run(self, feeds: Feeds) -> dict[str, Array]:
        self._request.infer(dict(feeds), share_inputs=True)
        return {n: np.array(t.data) for n, t in zip(self._names, self._request.output_tensors)}


RUNTIMES: dict[str, type[_Cuvil] | type[_OnnxRuntime] | type[_OpenVino]] = {
    "cuvil": _Cuvil,
    "onnxruntime": _OnnxRuntime,
    "openvino": _OpenVino,
}
PEERS = tuple(kind for kind in RUNTIMES if kind != "cuvil")


def check_kind(kind: str) -> str:
    if kind not in RUNTIMES:
        raise UnknownRuntime(f"unknown runtime '{kind}'", hint=nearest(kind, PEERS))
    return kind


def compare_runtimes(
    runners: Sequence[Runner],
    feeds: Feeds,
    *,
    threads: int = 1,
    rounds: int = 20,
    want: Mapping[str, Array] | None = None,
) -> list[Timing]:
    """One row per runner, in order; a runner that fails is a row that says why.

    Calls are interleaved (A B C A B C ...), so that a machine whose speed drifts slows all of them alike.
    Errors are against `want`, or against the first runner that works.
    """
    for runner in runners:
        check_kind(runner.kind)
    workers = [_Worker(runner, feeds, threads) for runner in runners]
    try:
        for _ in range(rounds + WARM_UP):
            for worker in workers:
                worker.call()
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
            self.cold, self.outputs = answer

    def call(self) -> None:
        if self.problem:
            return
        self.pipe.send("go")
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
    """The child's whole life: load, answer, then one timed call for each `go`."""
    try:
        runtime_class = RUNTIMES[kind]
        __import__(runtime_class.needs)
        imported = _resident_mb("VmRSS")
        start = time.perf_counter()
        runtime: _Runtime = runtime_class(path, threads)
        outputs = runtime.run(feeds)
        cold = time.perf_counter() - start
        pipe.send(("ready", (cold, {name: np.array(value) for name, value in outputs.items()})))
        while pipe.recv() == "go":
            start = time.perf_counter()
            runtime.run(feeds)
            pipe.send(("ready", time.perf_counter() - start))
        pipe.send(("ready", (imported, _resident_mb("VmHWM"))))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return
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
