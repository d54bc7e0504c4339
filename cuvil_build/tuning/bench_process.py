"""The process in which candidates run: one that crashes or hangs ends it and nothing else.

The parent sends (method, arguments) and gets ("ok", result) or ("failed", text).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_ALIGN = 64
_LONG_ENOUGH_S = 1e-3
"""Of one sample; a call of Python and the clock are far below a hundredth of it."""
_MOST_TIMES = 1 << 20


@dataclass(frozen=True, slots=True)
class Trial:
    """One kernel to run at one choice of dims."""

    library: str
    table: str
    index: int
    """In the library's table."""
    arrays: tuple[int, ...]
    """Of its buffers, by number."""
    written: tuple[bool, ...]
    constant: tuple[bool, ...]
    dims: tuple[int, ...]
    chunks: int
    scratch: int
    """Bytes."""


class _Memory:
    """Copies of an array at aligned addresses."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self._blocks: list[Bytes] = []

    def copy(self, number: int) -> Bytes:
        while len(self._blocks) <= number:
            block = aligned(self.data.nbytes)
            block[:] = self.data
            self._blocks.append(block)
        return self._blocks[number]

    def restore(self) -> None:
        for block in self._blocks:
            block[:] = self.data


def aligned(nbytes: int) -> Bytes:
    raw = np.zeros(nbytes + _ALIGN, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start : start + nbytes]


class Runner:
    def __init__(self) -> None:
        self._arrays: list[_Memory] = []
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._turn = 0

    def give(self, arrays: Sequence[Bytes]) -> int:
        """Take over arrays; the number of the first."""
        first = len(self._arrays)
        self._arrays += [_Memory(a) for a in arrays]
        return first

    def forget(self) -> None:
        """The arrays; libraries stay loaded."""
        self._arrays.clear()

    def outputs(self, trial: Trial) -> list[Bytes] | None:
        """What it writes; None where the order of chunks makes a difference."""
        whole = self._run(trial, [(0, trial.chunks)])
        single = [(c, c + 1) for c in reversed(range(trial.chunks))]
        if trial.chunks > 1 and any((a != b).any() for a, b in zip(whole, self._run(trial, single))):
            return None
        return whole

    def times(self, trial: Trial, copies: int) -> int:
        """How often it has to run for a sample that is long enough."""
        count = 1
        while count < _MOST_TIMES:
            seconds = self.sample(trial, copies, count) * count
            if seconds >= _LONG_ENOUGH_S:
                break
            count *= max(2, min(16, int(_LONG_ENOUGH_S / max(seconds, 1e-7))))
        return count

    def sample(self, trial: Trial, copies: int, times: int) -> float:
        """Seconds of one run, as a mean of so many; the weights are those of so many copies in turn."""
        sets = [self._pointers(trial, copy) for copy in range(copies)]
        table = (ctypes.c_void_p * copies)(*(ctypes.addressof(s) for s in sets))
        library = self._library(trial)
        dims = (ctypes.c_int64 * max(1, len(trial.dims)))(*trial.dims)
        scratch = aligned(trial.scratch)
        arguments = (
            self._function(trial),
            table,
            ctypes.c_int64(copies),
            ctypes.c_int64(self._turn),
            dims,
            ctypes.c_int64(trial.chunks),
            ctypes.c_void_p(scratch.ctypes.data),
            ctypes.c_int64(times),
        )
        self._turn += times
        start = time.perf_counter_ns()
        library.cuvil_repeat(*arguments)
        return (time.perf_counter_ns() - start) / 1e9 / times

    def _run(self, trial: Trial, ranges: Sequence[tuple[int, int]]) -> list[Bytes]:
        for number in trial.arrays:
            self._arrays[number].restore()
        prototype = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        )
        function = prototype(self._function(trial).value or 0)
        pointers = self._pointers(trial, 0)
        dims = (ctypes.c_int64 * max(1, len(trial.dims)))(*trial.dims)
        scratch = aligned(trial.scratch)
        for begin, end in ranges:
            function(ctypes.addressof(pointers), ctypes.addressof(dims), begin, end, scratch.ctypes.data)
        return [self._arrays[n].copy(0).copy() for n, written in zip(trial.arrays, trial.written) if written]

    def _pointers(self, trial: Trial, copy: int) -> Any:
        rows = zip(trial.arrays, trial.constant)
        found = [self._arrays[n].copy(copy if constant else 0).ctypes.data for n, constant in rows]
        return (ctypes.c_void_p * max(1, len(found)))(*found)

    def _library(self, trial: Trial) -> ctypes.CDLL:
        if trial.library not in self._libraries:
            self._libraries[trial.library] = ctypes.CDLL(trial.library)
        return self._libraries[trial.library]

    def _function(self, trial: Trial) -> ctypes.c_void_p:
        table = (ctypes.c_void_p * (trial.index + 1)).in_dll(self._library(trial), trial.table)
        return ctypes.c_void_p(table[trial.index])


def serve(pipe: Connection) -> None:
    """The child's whole life."""
    runner = Runner()
    try:
        while True:
            method, arguments = pipe.recv()
            try:
                pipe.send(("ok", getattr(runner, method)(*arguments)))
            except (OSError, ValueError, MemoryError, ctypes.ArgumentError) as error:
                pipe.send(("failed", f"{type(error).__name__}: {error}"))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return
