"""Which C compiler builds the modules: zig from PyPI, or one of the system."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.errors import ToolchainNotFound

KINDS = ("zig", "system")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """One compiler driver and how it is called."""

    kind: str
    """`zig` or `system`, as the YAML has it."""
    family: str
    """`zig`, `gcc` or `clang`: whose spelling of options it takes."""
    version: str
    """For system compilers what they and the assembler say: a distribution's patches count too."""
    command: tuple[str, ...]
    archiver: tuple[str, ...]

    @property
    def identity(self) -> str:
        """For cache keys and manifests: what decides the bytes, and no path."""
        return f"{self.family} {self.version}"


def find_toolchain(kind: str = "zig", arch: str = "") -> Toolchain:
    """Find the compiler; for `system`, one that builds for `arch` (empty: this machine's)."""
    if kind == "zig":
        return _find_zig()
    if kind == "system":
        return _find_system(arch or platform.machine(), _cc(), os.environ.get("PATH", ""))
    raise ToolchainNotFound(f"unknown toolchain '{kind}'", hint=f"known are {' and '.join(KINDS)}")


def closed_environment(toolchain: Toolchain) -> Mapping[str, str]:
    """The only variables that a compiler sees, so that none of the user's can change its output."""
    if toolchain.kind == "zig":
        cache = str(zig_cache())
        return {"LC_ALL": "C", "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    # gcc finds its assembler and linker by PATH
    return {"LC_ALL": "C", "PATH": os.environ.get("PATH", "")}


def zig_cache() -> Path:
    """One folder per user: zig builds parts of its own once per machine, never per project or test."""
    chosen = os.environ.get("CUVIL_ZIG_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "cuvil" / "zig"


@dataclass(frozen=True, slots=True)
class Watch:
    """What decides which compiler is found and which version it is."""

    files: tuple[Path, ...]
    absent: tuple[Path, ...]
    """Where it would be found earlier."""
    env: tuple[str, ...]


def watch_toolchain(kind: str) -> Watch:
    """Nothing for zig: it is a package of the Python environment."""
    if kind != "system":
        return Watch((), (), ())
    binary = Path(find_toolchain(kind).command[0])
    folders = [Path(part) for part in os.environ.get("PATH", "").split(os.pathsep) if part]
    places = [folder / name for name in _system_names(platform.machine(), _cc()) for folder in folders]
    earlier = places[: places.index(binary)] if binary in places else []
    tools = [found for name in ("as", "ld") if (found := shutil.which(name))]
    return Watch((binary, *map(Path, tools)), tuple(earlier), ("CC", "PATH"))


def _cc() -> str:
    return os.environ.get("CC", "")


@functools.cache
def _find_zig() -> Toolchain:
    spec = importlib.util.find_spec("ziglang")  # locates the package without running it
    folders = list(spec.submodule_search_locations or []) if spec else []
    name = "zig.exe" if os.name == "nt" else "zig"
    binary = next((path for folder in folders if (path := Path(folder) / name).is_file()), None)
    if binary is None:
        raise ToolchainNotFound("the Python package 'ziglang' is not installed", hint="pip install ziglang")
    version = _ask([str(binary), "version"])
    return Toolchain("zig", "zig", version, (str(binary), "cc"), (str(binary), "ar"))


@functools.cache
def _find_system(arch: str, cc: str, path: str) -> Toolchain:
    native = arch == platform.machine()
    names = _system_names(arch, cc)
    binary = next((found for name in names if (found := shutil.which(name, path=path))), None)
    if binary is None:
        raise ToolchainNotFound(
            f"no C compiler for {arch} found (looked for {', '.join(names)})",
            hint="install one, name one in CC, or use 'toolchain: zig'",
        )
    banner = _ask([binary, "--version"])
    family = "clang" if "clang" in banner else "gcc"
    prefix = "" if native or family == "clang" else f"{arch}-linux-gnu-"
    archiver = shutil.which(f"{prefix}ar", path=path) or f"{prefix}ar"
    assembler = shutil.which(f"{prefix}as", path=path)
    version = f"{banner}, {_ask([assembler, '--version'])}" if assembler else banner
    return Toolchain("system", family, version, (binary,), (archiver,))


def _system_names(arch: str, cc: str) -> list[str]:
    """Compilers in the order in which they win; one that the user names is the only one."""
    if arch != platform.machine():
        return [f"{arch}-linux-gnu-gcc", "clang"]
    return [cc] if cc else ["gcc", "clang", "cc"]


def _ask(command: list[str]) -> str:
    """The first line that a compiler prints."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainNotFound(f"'{Path(command[0]).name}' does not run: {error}") from error
    return answer.stdout.splitlines()[0].strip() if answer.stdout.strip() else ""
