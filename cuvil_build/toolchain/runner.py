"""Run a built module on sample inputs: natively, under an emulator, in a WebAssembly engine.

Always in another process, so that a module that crashes ends its own process and not the build.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cuvil_build.errors import Internal, NotExecuted
from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain import qemu
from cuvil_build.toolchain.exchange import Arrays, read_cases, write_cases
from cuvil_build.toolchain.process import execute

_NODE_SCRIPT = Path(__file__).parent / "run_node.mjs"
_TIMEOUT_S = 3600.0
"""Large networks take minutes under qemu."""


def runners_of(target: Target) -> tuple[str, ...]:
    """Everything that `run_module` can run this target with; the first is the default. Node 20 knows relaxed
    SIMD behind a flag alone, and its baseline compiler computes it wrongly."""
    if target.runner != "wasm":
        return (target.runner,)
    return ("wasmtime",) if "relaxed_simd" in target.features else ("wasmtime", "node")


def why_not_executed(target: Target, runner: str = "") -> str:
    """Empty where the runner is there; else what is missing and what to do, for the manifest."""
    runner = runner or runners_of(target)[0]
    if runner == "native":
        return _why_not_native(target)
    if runner == "wasmtime":
        found = importlib.util.find_spec("wasmtime") is not None
        return "" if found else "not executed: wasmtime not found (pip install wasmtime)"
    install = "qemu-user" if runner.startswith("qemu") else "nodejs"
    return "" if shutil.which(runner) else f"not executed: {runner} not found (install {install})"


def run_module(
    folder: Path,
    target: Target,
    feeds: Sequence[Arrays],
    *,
    runner: str = "",
    threads: int = 1,
    cpu: str = "",
    timeout_s: float = _TIMEOUT_S,
) -> list[dict[str, np.ndarray]]:
    """One module, opened once, run on each of the feeds in turn.

    Raises `NotExecuted` where nothing here runs the target, `ModuleRefused` with the module's own words when
    it returns an error, `ModuleCrashed` when it dies. `cpu` forces one member of a library for several CPUs.
    """
    runner = runner or runners_of(target)[0]
    if runner not in runners_of(target):
        raise Internal(f"'{runner}' does not run '{target.name}'")
    reason = why_not_executed(target, runner)
    if reason:
        raise NotExecuted(reason)
    folder = folder.absolute()
    with tempfile.TemporaryDirectory(prefix="cuvil-run-") as name:
        scratch = Path(name)
        if runner.startswith("qemu"):
            return qemu.run_under_qemu(folder, target, feeds, scratch, timeout_s)
        inputs, outputs = scratch / "feeds", scratch / "outputs"
        write_cases(inputs, feeds)
        command = _command(runner, folder, inputs, outputs, len(feeds), threads)
        environment = {**os.environ, **({"CUVIL_CPU": cpu} if cpu else {})}
        execute(command, folder.name, environment, timeout_s)
        return read_cases(outputs, len(feeds))


def _command(runner: str, folder: Path, feeds: Path, outputs: Path, count: int, threads: int) -> list[str]:
    files = [str(feeds), str(outputs), str(count)]
    if runner == "node":
        model = json.loads((folder / "manifest.json").read_text())["model"]
        return ["node", str(_NODE_SCRIPT), str(folder / f"{model}.js"), *files]
    python = [sys.executable, "-m", f"cuvil_build.toolchain.run_{runner}", str(folder), *files]
    return [*python, str(threads)] if runner == "native" else python


def _why_not_native(target: Target) -> str:
    arch = target.triple.split("-")[0]
    machine = platform.machine()
    if arch != machine:
        return f"not executed: this machine is {machine}, not {arch}"
    missing = sorted(set(target.features) - _cpu_features()) if machine == "x86_64" else []
    return f"not executed: this CPU has no {', '.join(missing)}" if missing else ""


def _cpu_features() -> set[str]:
    """As Linux spells them, which is as the targets do but for one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    spelt = {flag.replace("_", "") for flag in flags if flag.endswith("_vnni")}
    return {*flags, *spelt, *(["lzcnt"] if "abm" in flags else []), *(["bmi"] if "bmi1" in flags else [])}
