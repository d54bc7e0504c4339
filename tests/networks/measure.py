"""Builds and times the reference networks and the package models; writes docs/measurements.md. Takes an hour.

    python -m tests.networks.measure --work FOLDER [--model NAME ...] [--target NAME ...] [--part NAME ...]

Results are kept in FOLDER/results.json, row by row: a later run replaces the rows that it measures again, and
the page is written from all of them. Run it on a machine that does nothing else. Speed is that of the widest
x86-64 target that this machine runs; the part `speed` builds what is not there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import yaml

import cuvil
from cuvil_build import __version__
from cuvil_build.api import Project
from cuvil_build.measure import Runner, Timing, compare_runtimes
from cuvil_build.paths import shipped
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.runner import why_not_executed
from tests.e2e.quickstart import copy_quickstart
from tests.e2e.workshop import PACKAGE_MODELS, TARGETS, Built, Subject, Workshop, network, package_model
from tests.networks.machine import machine
from tests.networks.networks import FULL

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/measurements.md"
PARTS = ("build", "speed", "overheads")
MODELS = (*PACKAGE_MODELS, *(item.name for item in FULL))

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One process to its end, with the largest resident memory of it or of any process that it waited for."""

    seconds: float
    peak_mb: float


# A process inherits the peak of the one that started it, and this one holds models: a small one is between.
LAUNCHER = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def widest() -> str:
    names = ("x86_64-avx512", "x86_64-avx2")
    return next((n for n in names if not why_not_executed(load_target(n, [shipped("targets")]))), "x86_64")


def run_cuvil(folder: Path, store: Path, *arguments: str) -> Run:
    environment = {**os.environ, "CUVIL_STORE": str(store), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "cuvil_build", *arguments, "-C", str(folder)]
    log = folder / "measure.log"
    with log.open("a") as said:
        began = time.monotonic()
        launch = [sys.executable, "-I", "-S", "-c", LAUNCHER, *command]
        done = subprocess.run(launch, env=environment, stdout=subprocess.PIPE, stderr=said, check=True)
    status, kilobytes = done.stdout.split()
    if status != b"0":
        raise SystemExit(f"{' '.join(arguments)} failed: see {log}")
    return Run(time.monotonic() - began, int(kilobytes) / 1024)


def subject_of(name: str) -> Subject:
    return package_model(name) if name in PACKAGE_MODELS else network(name)


def measure_build(workshop: Workshop, name: str, target: str) -> Row:
    """With a store that has the source model and nothing else."""
    subject = subject_of(name)
    folder = workshop.folder(subject)
    fetched, store = (folder.parent / f"{name}-{part}-store" for part in ("fetched", target))
    run_cuvil(folder, fetched, "build", f"target:{target}", "--until", "fetch")
    for leftover in (store, folder / ".cuvil", folder / "build"):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.copytree(fetched, store)
    done = run_cuvil(folder, store, "build", f"target:{target}")
    manifest = built_of(folder, store, subject, target).manifest
    report = manifest["verification"]
    return {
        "seconds": round(done.seconds, 1),
        "peak_mb": round(done.peak_mb),
        "library_kb": round(manifest["library_bytes"] / 1024),
        "weights_mb": round(manifest["weights_bytes"] / 1e6, 2),
        "arena_mb": round((manifest["arena_bytes"] or 0) / 1e6, 2),
        "error": report["error"],
        "runners": report["runners"],
        "tier": manifest["tier"],
    }


def built_of(folder: Path, store: Path, subject: Subject, target: str) -> Built:
    project = Project.load(folder, environ={**os.environ, "CUVIL_STORE": str(store)})
    result = project.build([f"target:{target}"])
    assert result.ok
    return Built(folder / f"build/{subject.name}/fp32/{target}", result, project.store(), subject)


def measure_speed(workshop: Workshop, name: str, target: str, rounds: int) -> Row:
    """Both cases, in turn with onnxruntime and OpenVINO on the source model; with one thread and with two."""
    subject = subject_of(name)
    folder = workshop.folder(subject)
    built = built_of(folder, folder.parent / f"{name}-{target}-store", subject, target)
    model = folder.parent / f"{name}.onnx"
    shutil.copyfile(built.model(), model)
    row: Row = {}
    for number, feeds in enumerate(subject.cases, 1):
        runners = [Runner("onnxruntime", "onnxruntime", model), Runner("cuvil", "cuvil", built.folder)]
        runners.append(Runner("openvino", "openvino", model))
        for threads in (1, 2):
            timings = compare_runtimes(runners, feeds, threads=threads, rounds=rounds)
            row[f"case{number}_threads{threads}"] = speed_row(timings)
    return row


def speed_row(timings: Sequence[Timing]) -> Row:
    """OpenVINO may refuse a model; then onnxruntime is the best peer."""
    peer, ours = fine(timings[:2])
    other = timings[2]
    best = peer.median_ms if other.problem else min(peer.median_ms, other.median_ms)
    return {
        "ms": round(ours.median_ms, 3),
        "peer_ms": round(peer.median_ms, 3),
        "ratio": round(ours.ratio, 2),
        "best_ratio": round(ours.median_ms / best, 2),
        "cold_ms": round(ours.cold_ms, 1),
        "peer_cold_ms": round(peer.cold_ms, 1),
        "memory_mb": memory_over_imports(ours),
        "peer_memory_mb": memory_over_imports(peer),
    }


def memory_over_imports(timing: Timing) -> float | None:
    if timing.peak_mb is None or timing.imported_mb is None:
        return None
    return round(timing.peak_mb - timing.imported_mb, 1)


def fine(timings: Sequence[Timing]) -> Sequence[Timing]:
    problems = [f"{t.label}: {t.problem}" for t in timings if t.problem]
    if problems:
        raise SystemExit("; ".join(problems))
    return timings


def measure_overheads(work: Path) -> Row:
    """What depends on no model: a build with nothing to do, and a call of a model that does nothing."""
    folder = work / "quickstart"
    shutil.rmtree(folder, ignore_errors=True)
    store = copy_quickstart(folder) / ".store"
    run_cuvil(folder, store, "build")
    again = [run_cuvil(folder, store, "build").seconds for _ in range(5)]
    call_us, bare_us = call_cost(work)
    return {
        "nothing_to_do_s": round(min(again), 3),
        "call_us": round(call_us, 2),
        "bare_us": round(bare_us, 3),
    }


BARE = """
#include <stdio.h>
#include <time.h>
#include "noop.h"
int main(int count, char **words) {
  enum { CALLS = 200000 };
  static float x[4], y[4];
  static int64_t shape[] = {1, 4};
  const DLDataType dtype = {kDLFloat, 32, 1};
  const DLTensor in = {.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = dtype, .shape = shape};
  DLTensor out = {.data = y};
  struct timespec began, ended;
  noop_ctx *ctx;
  if (count < 2 || noop_open(&ctx, words[1], NULL)) return 1;
  timespec_get(&began, TIME_UTC);
  for (int i = 0; i < CALLS; i++) if (noop_run(ctx, &in, &out)) return 2;
  timespec_get(&ended, TIME_UTC);
  long long ns = (ended.tv_sec - began.tv_sec) * 1000000000LL + (ended.tv_nsec - began.tv_nsec);
  printf("%.4f\\n", (double)ns / 1e3 / CALLS);
  return 0;
}
"""


def call_cost(work: Path) -> tuple[float, float]:
    """Microseconds of a call of a model that does nothing, from Python and from C."""
    folder = work / "noop"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copyfile(ROOT / "tests/fixtures/noop.onnx", folder / "model.onnx")
    config = {
        "version": 1,
        "project": "noop",
        "models": {"noop": {"source": "model.onnx", "dims": {"batch": {"min": 1, "max": 8}}}},
        "targets": {"x64": {"use": "x86_64-avx2"}},
        "builds": [{"model": "noop", "target": "x64"}],
    }
    (folder / "cuvil.yaml").write_text(yaml.safe_dump(config))
    run_cuvil(folder, folder / ".store", "build")
    feeds = {"x": np.zeros((1, 4), np.float32)}
    with cuvil.load(folder / "build/noop/fp32/x64") as module:
        called = 1e6 * statistics.median(timed(lambda: module.run(feeds), 2000) for _ in range(9))
    return called, bare_call(folder)


def bare_call(folder: Path) -> float:
    built = folder / "build/noop/fp32/x64"
    (folder / "bare.c").write_text(BARE)
    compiler = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-O2",
        f"-I{built}",
        "bare.c",
        str(built / "module.so"),
    ]
    subprocess.run([*compiler, "-o", "bare"], cwd=folder, check=True)
    command = [str(folder / "bare"), str(built / "weights.safetensors")]
    said = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(9)]
    return statistics.median(float(text) for text in said)


def timed(call: Callable[[], object], count: int) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count


# ---- the page -------------------------------------------------------------------------------------------

HEAD = """\
# Measurements

Written by `python -m tests.networks.measure`; not edited by hand. Cuvil {version}, onnxruntime {ort},
{machine}. Milliseconds drift from machine to machine and from hour to hour; ratios, taken in turn call by
call, hold. `resnet50`, `mobilenet_v2`, `bert_ffn` and `bert_base` are the published architectures with seeded
random weights (`tests/networks`); the others ship inside packages (`tests/e2e/models.yaml`).
"""
BUILDS = """
## Cold builds

An empty store but for the fetched model, one target, {cores} cores; the peak is that of the largest process.
The error is the largest of both samples and of all engines, relative to the largest magnitude, against
onnxruntime.

| model | target | seconds | peak MB | library kB | weights MB | arena MB | error | executed by |
|---|---|---:|---:|---:|---:|---:|---:|---|
"""
SPEED = """
## Speed on {target}

Milliseconds of one call through Python, median; ratio to onnxruntime and to the faster of onnxruntime and
OpenVINO (below 1 is faster), each with one thread and with two. Cold: from the start of loading to the first
result. Memory: the peak over what the imports took, in MB. Both beside onnxruntime's.

| model | case | ms | ratio | to best | ms, 2 threads | ratio, 2 threads | to best | cold ms | memory |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""
OVERHEADS = """
## Overheads

- `cuvil build` of the quickstart with nothing to do: {nothing_to_do_s} s wall, best of 5
- `module.run` from Python on a model that does nothing: {call_us} µs a call; from C {bare_us} µs
"""


def page(results: Mapping[str, Any]) -> str:
    facts = {"version": __version__, "ort": onnxruntime.__version__, "machine": machine()}
    text = HEAD.format(**facts)
    if "note" in results:
        text += f"\n**{results['note']}**\n"
    builds = [row for row in (build_row(results, m, t) for m in MODELS for t in TARGETS) if row]
    if builds:
        text += BUILDS.format(cores=os.cpu_count()) + "".join(builds)
    for target in TARGETS:
        speed = [line for name in MODELS for line in speed_rows(results, name, target)]
        text += SPEED.format(target=target) + "".join(speed) if speed else ""
    if "overheads" in results:
        text += OVERHEADS.format(**results["overheads"])
    return text


def build_row(results: Mapping[str, Any], model: str, target: str) -> str:
    row = results.get(f"build {model} {target}")
    if row is None:
        return ""
    numbers = [row[k] for k in ("seconds", "peak_mb", "library_kb", "weights_mb", "arena_mb", "error")]
    return f"| {model} | {target} | {' | '.join(map(str, numbers))} | {', '.join(row['runners'])} |\n"


def speed_rows(results: Mapping[str, Any], model: str, target: str) -> list[str]:
    row = results.get(f"speed {model} {target}")
    if row is None:
        return []
    lines = []
    for number in (1, 2):
        one, two = row[f"case{number}_threads1"], row[f"case{number}_threads2"]
        cells = [number, *(part[key] for part in (one, two) for key in ("ms", "ratio", "best_ratio"))]
        cells.append(f"{one['cold_ms']} / {one['peer_cold_ms']}")
        cells.append(f"{one['memory_mb']} / {one['peer_memory_mb']}")
        lines.append(f"| {model} | {' | '.join(map(str, cells))} |\n")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for projects and results")
    parser.add_argument("--model", action="append", choices=MODELS, help="repeatable; all without one")
    parser.add_argument("--target", action="append", choices=TARGETS, help="repeatable; all without one")
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable; all without one")
    parser.add_argument("--rounds", type=int, default=20, help="timed calls")
    parser.add_argument("--to", type=Path, default=PAGE, help="the page")
    parser.add_argument("--note", help="what a reader has to know of the circumstances")
    arguments = parser.parse_args()
    work: Path = arguments.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    kept = work / "results.json"
    results: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if arguments.note is not None:
        results["note"] = arguments.note
    workshop = Workshop(work, work / "store")

    def keep(key: str, row: Row) -> None:
        print(key, row, flush=True)
        results[key] = row
        kept.write_text(json.dumps(results, indent=1, sort_keys=True))
        arguments.to.write_text(page(results))

    parts, timed_target = arguments.part or PARTS, widest()
    for name in arguments.model or MODELS:
        for target in arguments.target or TARGETS:
            if "build" in parts:
                keep(f"build {name} {target}", measure_build(workshop, name, target))
        if "speed" in parts:
            key = f"speed {name} {timed_target}"
            keep(key, measure_speed(workshop, name, timed_target, arguments.rounds))
    if "overheads" in parts:
        keep("overheads", measure_overheads(work))


if __name__ == "__main__":
    main()
