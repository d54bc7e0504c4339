"""Units of many modules to objects and libraries, in few compiler calls; equal units once."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from cuvil_build.paths import shipped
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.command import compile_flags, link_command
from cuvil_build.toolchain.find import closed_environment, find_toolchain

PER_CALL = 32
BATCH_LIMIT_S = 900
SINGLE_LIMIT_S = 180
CPU_LIMIT_S = 60
"""Of one process of a compiler: a file beyond that costs its own module alone."""
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True, slots=True)
class Unit:
    """One source file with the flags of its own."""

    source: str
    """From the folder of sources; its stem is unique."""
    headers: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compiler:
    command: tuple[str, ...]
    link: tuple[str, ...]
    environment: Mapping[str, str]
    identity: str
    preload: str = ""
    """Library that a process must load first to run what this one makes."""


def shipped_compiler(target: str) -> Compiler:
    """The compiler and all flags of a build. zig's own driver takes one file a call, or joins the objects of
    several: the clang inside of it is asked directly."""
    tools = find_toolchain()
    description = load_target(target, [shipped("targets")])
    zig = Path(tools.command[0])
    flags = [f for f in compile_flags(tools, description) if not f.startswith("-mcpu=")]
    machine = (f"-march={description.gcc_march}", "-isystem", str(zig.parent / "lib/include"))
    words = link_command(tools, description, [], Path("unused")).argv[len(tools.command) : -2]
    return Compiler(
        (str(zig), "clang", *flags, *machine),
        (*tools.command, *words),
        closed_environment(tools),
        tools.identity,
    )


def sanitizing_compiler(target: str) -> Compiler:
    """gcc under the address and the undefined-behaviour sanitizers."""
    march = load_target(target, [shipped("targets")]).gcc_march
    base = ("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", f"-march={march}", *SANITIZERS)
    flags = (*base, "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-Wno-frame-larger-than")
    ask = ["gcc", "-print-file-name=libasan.so"]
    preload = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    version = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True).stdout
    return Compiler(flags, (*base, "-shared"), dict(os.environ), version, preload)


@dataclass
class Objects:
    """Compiles what is not in the cache yet."""

    sources: Path
    cache: Path
    compiler: Compiler
    jobs: int
    errors: dict[Unit, str] = field(default_factory=dict)
    made: int = 0
    _paths: dict[Unit, Path] = field(default_factory=dict)

    def path(self, unit: Unit) -> Path:
        if unit not in self._paths:
            self._paths[unit] = self.cache / f"{self._key(unit)}.o"
        return self._paths[unit]

    def compile(self, units: Sequence[Unit]) -> None:
        """After this each unit has its object, or its text in `errors`."""
        self.cache.mkdir(parents=True, exist_ok=True)
        wanted = [u for u in dict.fromkeys(units) if not self.path(u).exists()]
        self.made = len(wanted)
        with ThreadPoolExecutor(self.jobs) as pool:
            for failed in list(pool.map(self._compile, list(_calls(wanted)))):
                self.errors |= failed

    def link(self, units: Sequence[Unit], library: Path) -> str:
        """What the linker has against it; empty when the library is there."""
        objects = [str(self.path(u)) for u in units]
        with tempfile.NamedTemporaryFile("w", suffix=".args") as listing:
            listing.write("\n".join(objects))
            listing.flush()
            return self._run([*self.compiler.link, "-o", str(library), f"@{listing.name}"], SINGLE_LIMIT_S)

    def _compile(self, units: Sequence[Unit]) -> dict[Unit, str]:
        """In one call; again without those that it names in an error, and one by one where it names none."""
        failed: dict[Unit, str] = {}
        waiting = list(units)
        while waiting:
            with tempfile.TemporaryDirectory(dir=self.cache) as scratch:
                limit_s = BATCH_LIMIT_S if len(waiting) > 1 else SINGLE_LIMIT_S
                said = self._call(waiting, Path(scratch), limit_s)
            waiting = [u for u in waiting if not self.path(u).exists()]
            named = [u for u in waiting if _errors_of(said, u)]
            failed |= {u: _errors_of(said, u) for u in named}
            waiting = [u for u in waiting if u not in failed]
            if waiting and not named:
                break
        if len(waiting) == 1 == len(units):
            return {waiting[0]: said}
        for unit in waiting:
            failed |= self._compile([unit])
        return failed

    def _call(self, units: Sequence[Unit], scratch: Path, limit_s: float) -> str:
        files = [str(self.sources / u.source) for u in units]
        folder = f"-I{self.sources / 'runtime'}"
        said = self._run([*self.compiler.command, *units[0].flags, folder, "-c", *files], limit_s, scratch)
        for unit in units:
            made = scratch / f"{Path(unit.source).stem}.o"
            if made.exists():
                made.replace(self.path(unit))
        return said

    def _run(self, command: Sequence[str], limit_s: float, folder: Path | None = None) -> str:
        limited = ("sh", "-c", f'ulimit -t {CPU_LIMIT_S} && exec "$@"', "sh", *command)
        process = subprocess.Popen(
            limited,
            cwd=folder,
            env=dict(self.compiler.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"the compiler did not end within {limit_s:g} s"
        return said.decode(errors="replace").strip() or "no output" if process.returncode else ""

    def _key(self, unit: Unit) -> str:
        digest = hashlib.sha256(repr((self.compiler.command, self.compiler.identity, unit.flags)).encode())
        for path in (unit.source, *sorted(unit.headers)):
            digest.update((self.sources / path).read_bytes() + b"\0")
        return digest.hexdigest()


def _calls(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Those with the same flags, a handful at a time."""
    groups: dict[tuple[str, ...], list[Unit]] = {}
    for unit in units:
        groups.setdefault(unit.flags, []).append(unit)
    for _, group in sorted(groups.items()):
        for start in range(0, len(group), PER_CALL):
            yield group[start : start + PER_CALL]


def _errors_of(said: str, unit: Unit) -> str:
    """What a compiler has against one of several files."""
    name = re.escape(Path(unit.source).name)
    lines = [line for line in said.splitlines() if re.search(rf"(^|/){name}:\d+:\d+: (fatal )?error: ", line)]
    return "\n".join(lines)


def first_error(text: str) -> str:
    """The line of a compiler's output that says what is wrong."""
    lines = [line for line in text.splitlines() if re.search(r"\b(error|undefined)\b", line)]
    return re.sub(r"^\S*:\d+:\d+: ", "", lines[0] if lines else text.splitlines()[0] if text else "")
