"""How near the products of a module come to the peak of the machine's multiply-adds, hot and in their place.

    python -m tests.networks.contractions FOLDER [--rounds N] [--repeat N] [--json]

FOLDER holds a built module. One thread. In each round the peak is measured with vectors of the target's
width, and the module runs twice: once with each kernel in its place, once with each kernel repeated on the
same operands (`hot` is the best of these). Rates are FLOP/s of the product alone: epilogues take time and
count nothing; each is taken as a part of the peak of its own round, medians over rounds. Products are
kernels that do little else: attention and what walks are not among them. `mean` weighs by FLOPs; `whole` is
all FLOPs by all time. Equal kernels (same name, same FLOPs) are one row, sorted by what reaching the peak
would save.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cuvil
from cuvil.profile import Recorder
from cuvil_build.bundle.call_table import FILE_NAME
from cuvil_build.bundle.golden import read_golden
from cuvil_build.codegen.module import RUNTIME_FOLDER
from cuvil_build.paths import shipped
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.command import compile_command, link_command, run_command
from cuvil_build.toolchain.find import find_toolchain

SOURCE = Path(__file__).parent / "contractions.c"
LITTLE = 0.9
"""A kernel is a product where so much of its work is one."""
PEAK_ROUNDS = 200_000


class _Record(ctypes.Structure):
    _fields_ = [
        ("jobs", ctypes.POINTER(ctypes.c_int32)),
        ("ticks", ctypes.POINTER(ctypes.c_int64)),
        ("repeat", ctypes.c_int32),
    ]


class _Pool(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("parallel_for", ctypes.c_void_p), ("user", ctypes.c_void_p)]


@dataclass(frozen=True, slots=True)
class Rate:
    """Of a call, as parts of the peak; medians over rounds."""

    call: Mapping[str, Any]
    flops: int
    hot: float
    placed: float


@dataclass(frozen=True, slots=True)
class Rates:
    peak_gflops: float
    calls: Sequence[Rate]
    """Of products."""
    run_ns: float
    product_ns: float


def measure(folder: Path, rounds: int, repeat: int) -> Rates:
    calls = json.loads((folder / FILE_NAME).read_text())
    if not all("product_flops" in call for call in calls if "flops" in call):
        raise SystemExit(f"{folder / FILE_NAME} does not tell products: build the module again")
    feeds = dict(read_golden(folder / "golden.safetensors")[-1].inputs)
    with tempfile.TemporaryDirectory() as scratch:
        code = ctypes.CDLL(str(_harness(folder, Path(scratch))))
    code.time_launch_address.restype = ctypes.c_void_p
    code.multiply_adds.restype = code.ticks_now.restype = ctypes.c_int64
    jobs = (ctypes.c_int32 * len(calls))(*_jobs(calls))
    record = _Record(jobs)
    pool = _Pool(ctypes.sizeof(_Pool), code.time_launch_address(), ctypes.addressof(record))
    per_ns = _ticks_per_ns(code)
    peaks, placed, hot, runs = [], [], [], []
    # two threads, so that the module asks the pool, which is one
    with cuvil.load(folder, threads=2, pool=ctypes.addressof(pool)) as module:
        recorder = Recorder(len(calls))
        module._record(recorder)  # the launch then says which calls it is of
        for number in range(rounds + 1):
            peak = _peak(code)
            start = time.perf_counter()
            one = _run(module, feeds, record, len(calls), 1)
            took = time.perf_counter() - start
            many = _run(module, feeds, record, len(calls), repeat)
            if number:
                peaks.append(max(peak, _peak(code)))
                placed.append([ticks[0] for ticks in one])
                hot.append([min(ticks) for ticks in many])
                runs.append(1e9 * took)
        module._record(None)
    found = []
    for n, call in enumerate(calls):
        flops = call.get("product_flops", 0)
        if 0 < LITTLE * call.get("flops", 0) <= flops and placed[0][n]:
            in_place = statistics.median(flops / row[n] / peak for row, peak in zip(placed, peaks))
            best = statistics.median(flops / row[n] / peak for row, peak in zip(hot, peaks))
            found.append(Rate(call, flops, best, in_place))
    peak = statistics.median(peaks) * per_ns
    spent = sum(rate.flops / (rate.placed * peak) for rate in found)
    return Rates(peak, found, statistics.median(runs), spent)


def _harness(folder: Path, scratch: Path) -> Path:
    """The pool as a library, with the flags of the module's target."""
    name = json.loads((folder / "manifest.json").read_text())["target"]
    target, toolchain = load_target(name, (shipped("targets"),)), find_toolchain("zig")
    output, library = scratch / "contractions.o", scratch / f"contractions{target.library_suffix}"
    flags = ["-DCUVIL_RT_ID=harness", f"-DVECTOR_BYTES={target.vector_bytes}"]
    if target.triple.startswith("x86_64"):  # or the compiler splits the widest ones
        flags.append(f"-mprefer-vector-width={8 * target.vector_bytes}")
    run_command(compile_command(toolchain, target, SOURCE, output, [RUNTIME_FOLDER], flags))
    run_command(link_command(toolchain, target, [output], library))
    return library


def _jobs(calls: Sequence[Mapping[str, Any]]) -> list[int]:
    """For each call how many calls its launch has."""
    return [sum(1 for other in calls if other["launch"] == call["launch"]) for call in calls]


def _run(
    module: cuvil.Module, feeds: Mapping[str, Any], record: _Record, calls: int, repeat: int
) -> list[list[int]]:
    """The ticks of each repetition of each call; 0 where the module did not ask the pool."""
    ticks = (ctypes.c_int64 * (calls * repeat))()
    record.ticks, record.repeat = ticks, repeat
    module.run(feeds)
    return [ticks[n * repeat : (n + 1) * repeat] for n in range(calls)]


def _peak(code: ctypes.CDLL) -> float:
    """FLOPs a tick, best of some."""
    operations = ctypes.c_int64()
    took = [code.multiply_adds(ctypes.c_int64(PEAK_ROUNDS), ctypes.byref(operations)) for _ in range(3)]
    return operations.value / min(took)


def _ticks_per_ns(code: ctypes.CDLL) -> float:
    began, ticks = time.perf_counter_ns(), code.ticks_now()
    time.sleep(0.05)
    return float((code.ticks_now() - ticks) / (time.perf_counter_ns() - began))


def summary(rates: Rates) -> dict[str, float]:
    flops = sum(rate.flops for rate in rates.calls)

    def mean(values: Sequence[float]) -> float:
        return sum(r.flops * v for r, v in zip(rates.calls, values)) / flops

    def whole(values: Sequence[float]) -> float:
        return flops / sum(r.flops / v for r, v in zip(rates.calls, values))

    hot, placed = [r.hot for r in rates.calls], [r.placed for r in rates.calls]
    return {
        "peak_gflops": rates.peak_gflops,
        "hot_mean": mean(hot),
        "hot_whole": whole(hot),
        "placed_mean": mean(placed),
        "placed_whole": whole(placed),
        "part_of_run": rates.product_ns / rates.run_ns,
    }


def rows(rates: Rates) -> list[tuple[float, str]]:
    """Equal kernels together."""
    groups: dict[tuple[str, int], list[Rate]] = {}
    for rate in rates.calls:
        groups.setdefault((rate.call["kernel"], rate.flops), []).append(rate)
    found = []
    for (kernel, flops), same in groups.items():
        hot, placed = (statistics.mean(getattr(r, key) for r in same) for key in ("hot", "placed"))
        us = flops / (placed * rates.peak_gflops) / 1e3
        lost = len(same) * us * (1 - placed)
        text = f"{len(same):3d} {us:9.1f} {hot:6.2f} {placed:8.2f} {lost:9.0f}  {kernel} "
        found.append((lost, text + same[0].call["nodes"][:60]))
    return sorted(found, reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=5, help="of each kernel, where it is hot")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rates = measure(arguments.folder, arguments.rounds, arguments.repeat)
    totals = summary(rates)
    if arguments.json:
        calls = [{**r.call, "hot": r.hot, "placed": r.placed} for r in rates.calls]
        print(json.dumps({**totals, "calls": calls}, indent=1))
        return
    print(f"peak {totals['peak_gflops']:.1f} GFLOP/s; products take {totals['part_of_run']:.0%} of a run")
    print(
        f"hot: mean {totals['hot_mean']:.3f}, whole {totals['hot_whole']:.3f}; "
        f"in place: mean {totals['placed_mean']:.3f}, whole {totals['placed_whole']:.3f}"
    )
    print("  n   us each    hot in place  lost us")
    for _, text in rows(rates):
        print(text)


if __name__ == "__main__":
    main()
