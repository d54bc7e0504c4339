"""What a call of a module costs a host in C, and what `module.run` of Python adds to it."""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.measure.runtimes import Feeds
from cuvil_build.toolchain.command import Command, run_command
from cuvil_build.toolchain.find import closed_environment, find_toolchain

_SOURCE = Path(__file__).parent / "call_repeatedly.c"
_TURN_S = 0.002
"""Of calls in a row: a reading of the clock does not show in it."""


@dataclass(frozen=True, slots=True)
class CallCost:
    """Medians over turns, in microseconds; calls of one turn follow each other."""

    c_us: float
    """From C, into the caller's own outputs."""
    run_us: float
    """`module.run` from Python, whose outputs are new arrays."""


def cost_of_calls(folder: Path, feeds: Feeds, threads: int, turns: int) -> CallCost:
    """In a process that runs modules: this one."""
    import cuvil

    with (
        tempfile.TemporaryDirectory(prefix="cuvil-calls-") as name,
        cuvil.load(folder, threads=threads) as module,
    ):
        repeat = _compiled(Path(name))

        def from_c(count: int) -> None:
            module.run_through(
                lambda run, context, into, out: int(repeat(run, context, into, out, count)), feeds
            )

        def from_python(count: int) -> None:
            for _ in range(count):
                module.run(feeds)

        from_python(2)
        began = time.perf_counter()
        from_c(8)
        count = max(1, round(_TURN_S * 8 / (time.perf_counter() - began)))
        times: dict[Callable[[int], None], list[float]] = {from_c: [], from_python: []}
        for _ in range(turns):
            for calls, took in times.items():
                began = time.perf_counter()
                calls(count)
                took.append(1e6 * (time.perf_counter() - began) / count)
    return CallCost(*(statistics.median(took) for took in times.values()))


def _compiled(folder: Path) -> Callable[..., int]:
    toolchain, library = find_toolchain("zig"), folder / "call_repeatedly.so"
    flags = ("-std=c11", "-O2", "-g0", "-ffreestanding", "-nostdlib", "-fPIC", "-shared")
    argv = (*toolchain.command, *flags, "-o", str(library), str(_SOURCE))
    run_command(Command(argv, closed_environment(toolchain), library))
    function = ctypes.CDLL(str(library)).cuvil_call_repeatedly
    function.argtypes = [*[ctypes.c_void_p] * 4, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function
