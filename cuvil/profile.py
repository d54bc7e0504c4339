"""What the calls of a module's kernels take inside its runs."""

from __future__ import annotations

import ctypes
import statistics
from dataclasses import dataclass


class CallTimes(ctypes.Structure):
    """`cuvil_call_time` of the header: of one call, in ticks."""

    _fields_ = [("wall", ctypes.c_int64), ("busy", ctypes.c_int64), ("runs", ctypes.c_int64)]


class Counters(ctypes.Structure):
    """`cuvil_profile` of the header."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("clock", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
        ("calls", ctypes.POINTER(CallTimes)),
        ("ticks", ctypes.c_int64),
        ("nanoseconds", ctypes.c_int64),
    ]


@dataclass(frozen=True, slots=True)
class Profile:
    """Medians over runs, in nanoseconds; what a run took beside its calls was spent between them."""

    run_ns: float
    wall_ns: tuple[float, ...]
    """Of each call, in the module's order: until all threads were done with it. Of calls that run at the same
    time, the first one has all of it, the others have 0."""
    busy_ns: tuple[float, ...]
    """Of each call: inside the kernel, over all threads. What is missing to `wall_ns` times the number of
    threads, they waited."""


@dataclass(frozen=True, slots=True)
class OneRun:
    run_ns: float
    wall_ns: list[float]
    busy_ns: list[float]


class Recorder:
    """Counters that a context writes to, and what they said after each run."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._calls = (CallTimes * max(count, 1))()
        self.counters = Counters(size=ctypes.sizeof(Counters), calls=self._calls)
        self._runs: list[OneRun] = []

    def clear(self) -> None:
        ctypes.memset(self._calls, 0, ctypes.sizeof(self._calls))
        self.counters.ticks = self.counters.nanoseconds = 0

    def keep(self) -> None:
        """The run since `clear`."""
        each = self.counters.nanoseconds / max(self.counters.ticks, 1)
        calls = self._calls[: self._count]
        wall, busy = [each * c.wall for c in calls], [each * c.busy for c in calls]
        self._runs.append(OneRun(float(self.counters.nanoseconds), wall, busy))

    def medians(self) -> Profile:
        return Profile(
            statistics.median(run.run_ns for run in self._runs),
            tuple(statistics.median(times) for times in zip(*(run.wall_ns for run in self._runs))),
            tuple(statistics.median(times) for times in zip(*(run.busy_ns for run in self._runs))),
        )
