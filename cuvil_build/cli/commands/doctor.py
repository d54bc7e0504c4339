"""`cuvil doctor`: what is installed, what is missing, and for which targets that matters."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata

from cuvil_build import __version__, paths
from cuvil_build.cli import console, options
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target, target_names

HELP = "Show what is installed, what is missing, and for which target it matters."

PROBE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One tool: its version, or how to get it."""

    tool: str
    version: str
    needed_for: str
    required: bool
    get: str

    @property
    def status(self) -> str:
        if self.version:
            return "found"
        return "missing" if self.required else "absent"


def command(
    directory: options.FolderOption = options.HERE, format: options.FormatOption = options.TEXT
) -> int:
    folders = paths.search_path("targets", directory)
    targets = [load_target(name, folders) for name in target_names(folders)]
    findings = examine(targets)
    missing = [finding.tool for finding in findings if finding.status == "missing"]
    if format is options.OutputFormat.json:
        console.emit_json([{**asdict(finding), "status": finding.status} for finding in findings])
        return 1 if missing else 0
    rows = [(f.tool, f.status, f.version or "-", f.needed_for, "" if f.version else f.get) for f in findings]
    console.print_table(("tool", "status", "version", "needed for", "get it with"), rows)
    console.print_line()
    console.print_line(f"missing: {', '.join(missing)}" if missing else "all that a build needs is here")
    return 1 if missing else 0


def examine(targets: Sequence[Target]) -> list[Finding]:
    """Every tool that a build, a check or a package can need; versions only, no paths."""
    native = _targets(targets, "native")
    wasm = _targets(targets, "wasm")
    machine = f"{platform.system()} {platform.machine()}"
    return [
        Finding("cuvil", f"{__version__} on {machine}", "everything", True, ""),
        Finding("python", ".".join(map(str, sys.version_info[:3])), "everything", True, ""),
        _package("ziglang", "compiling, every target", required=True),
        _package("ninja", "building", required=True),
        _package("onnx", "importing models", required=True),
        _package("onnx-ir", "importing models", required=True),
        _package("onnxruntime", "verifying", required=True),
        _package("numpy", "building, and running modules from Python", required=True),
        Finding("native run", _native_machine(), f"running {native}", False, "run on an x86-64 machine"),
        _program("qemu-aarch64", f"running {_targets(targets, 'qemu-aarch64')}", "apt install qemu-user"),
        _package("wasmtime", f"running {wasm}", required=False),
        _program("node", f"running {wasm}", "apt install nodejs"),
        _program("gcc", "'toolchain: system'", "apt install gcc"),
        _program("clang", "'toolchain: system'", "apt install clang"),
        _package("openvino", "bench --against openvino", required=False),
    ]


def _targets(targets: Sequence[Target], runner: str) -> str:
    return ", ".join(target.name for target in targets if target.runner == runner) or "no target"


def _native_machine() -> str:
    return platform.machine() if platform.machine() in ("x86_64", "AMD64") else ""


def _package(name: str, needed_for: str, *, required: bool) -> Finding:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = ""
    return Finding(name, version, needed_for, required, f"pip install {name}")


def _program(name: str, needed_for: str, get: str) -> Finding:
    return Finding(name, _program_version(name), needed_for, False, get)


def _program_version(name: str) -> str:
    """The first version-like word that the program says about itself."""
    path = shutil.which(name)
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = done.stdout.split()
    return next((w.strip("(),v") for w in words if w.strip("(),v")[:1].isdigit()), "unknown version")
