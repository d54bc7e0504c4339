"""Command lines of the compiler: one kernel file to one object, objects to a library.

Everything is freestanding and says so: no libc, no debug information, no folder of the build machine in
the bytes. The same sources give the same bytes in any folder.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.errors import CompileFailed, NotYet
from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain.find import Toolchain, closed_environment

_DIALECT = ("-std=c11", "-Wall", "-Wextra", "-Werror")
_NUMBERS = (
    "-O3",
    # a*b+c becomes one FMA where the machine has it: faster and more exact. No -ffast-math: it reorders
    # sums and assumes that there are no NaNs
    "-ffp-contract=fast",
    "-fno-math-errno",
    # modules neither read exception flags nor unmask traps, so the compiler may turn branches into
    # selects; values do not change
    "-fno-trapping-math",
    # zig checks undefined behaviour by default and would call a runtime that is not there
    "-fno-sanitize=undefined",
)
_FREESTANDING = (
    "-ffreestanding",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fdata-sections",
    # need a runtime or tables that a freestanding module has no use for
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
)
_REPRODUCIBLE = ("-g0", "-fno-ident")

WASM_STACK_BYTES = 256 * 1024
"""Kernels take scratch from the arena, so the stack only holds frames. It lies below the data: an overflow
traps and overwrites nothing."""


@dataclass(frozen=True, slots=True)
class Command:
    """One call of a tool that writes one file."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    output: Path
    cwd: Path | None = None
    """Where it runs; relative paths of `argv` and `output` start there."""


def compile_flags(toolchain: Toolchain, target: Target) -> tuple[str, ...]:
    """What decides an object's bytes beside its source; paths are not among it."""
    return (
        *_machine(toolchain, target),
        *_DIALECT,
        *_quiet(toolchain),
        *_NUMBERS,
        *_FREESTANDING,
        *_REPRODUCIBLE,
    )


def object_command(
    toolchain: Toolchain,
    flags: Sequence[str],
    source: Path,
    output: Path,
    include_dirs: Sequence[Path] = (),
    cwd: Path | None = None,
) -> Command:
    """One C file to one object, with `compile_flags` and the file's own in `flags`."""
    argv = [*toolchain.command, *flags]
    argv += [f"-I{folder}" for folder in include_dirs]
    argv += [f"-ffile-prefix-map={folder}=." for folder in sorted({source.parent, *include_dirs})]
    argv += ["-c", str(source), "-o", str(output)]
    return Command(tuple(argv), closed_environment(toolchain), output, cwd)


def compile_command(
    toolchain: Toolchain,
    target: Target,
    source: Path,
    output: Path,
    include_dirs: Sequence[Path] = (),
    flags: Sequence[str] = (),
    cwd: Path | None = None,
) -> Command:
    """As `object_command`, for a target."""
    own = (*compile_flags(toolchain, target), *flags)
    return object_command(toolchain, own, source, output, include_dirs, cwd)


def link_command(
    toolchain: Toolchain,
    target: Target,
    objects: Sequence[Path],
    output: Path,
    exports: Sequence[str] = (),
) -> Command:
    """Objects to the module's library. What its sources mark as visible is exported; `exports` adds names
    that are not marked, for WebAssembly."""
    shape = _link_wasm(exports) if is_wasm(target) else _link_elf()
    argv = [*toolchain.command, *_machine(toolchain, target), "-nostdlib", "-s", *shape]
    argv += ["-o", str(output), *map(str, objects)]
    return Command(tuple(argv), closed_environment(toolchain), output)


def archive_command(toolchain: Toolchain, objects: Sequence[Path], output: Path) -> Command:
    """Objects to a static library without times and owners."""
    argv = (*toolchain.archiver, "rcsD", str(output), *map(str, objects))
    return Command(argv, closed_environment(toolchain), output)


def driver_command(
    toolchain: Toolchain,
    target: Target,
    sources: Sequence[Path],
    archive: Path,
    output: Path,
    include_dirs: Sequence[Path] = (),
) -> Command:
    """A static program with its own `_start` around a module's archive, for an emulator."""
    argv = [*toolchain.command, *compile_flags(toolchain, target), "-static", "-nostdlib"]
    argv += [f"-I{folder}" for folder in include_dirs]
    argv += ["-o", str(output), *map(str, sources), str(archive)]
    return Command(tuple(argv), closed_environment(toolchain), output)


def run_command(command: Command) -> None:
    """Run a tool; raise `CompileFailed` with what it said when it fails."""
    output = (command.cwd or Path()) / command.output
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)  # `ar` would add to an old archive
    done = subprocess.run(
        command.argv, env=dict(command.env), cwd=command.cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        tool = Path(command.argv[0]).name
        raise CompileFailed(f"{tool} failed for '{output.name}':\n{(done.stderr or done.stdout).strip()}")


def is_wasm(target: Target) -> bool:
    return target.triple.startswith("wasm32")


def _machine(toolchain: Toolchain, target: Target) -> tuple[str, ...]:
    if toolchain.family == "zig":
        return ("-target", target.triple, f"-mcpu={target.cpu}")
    architecture = target.triple.split("-")[0]
    native = architecture == platform.machine() or Path(toolchain.command[0]).name.startswith(architecture)
    if is_wasm(target) or not native:
        raise NotYet(
            f"'toolchain: system' for target '{target.name}': {toolchain.family} builds for "
            f"{platform.machine()} here",
            hint="use 'toolchain: zig', which builds for every target",
        )
    triple = (f"--target={target.triple}",) if toolchain.family == "clang" else ()
    return (*triple, *f"-march={target.gcc_march}".split())


def _quiet(toolchain: Toolchain) -> tuple[str, ...]:
    # gcc notes that the ABI of vector arguments has changed; no vector crosses a call by value here
    return ("-Wno-psabi",) if toolchain.family == "gcc" else ()


def _link_elf() -> tuple[str, ...]:
    return (
        "-shared",
        "-Wl,--gc-sections",
        "-Wl,-z,relro",
        "-Wl,-z,now",
        "-Wl,-z,noexecstack",
        "-Wl,--build-id=none",
    )


def _link_wasm(exports: Sequence[str]) -> tuple[str, ...]:
    """The module owns its memory and exports it; the loader grows it above `__heap_base`."""
    names = ["__heap_base", *sorted(exports)]
    return (
        "-Wl,--no-entry",
        "-Wl,--gc-sections",
        f"-Wl,-z,stack-size={WASM_STACK_BYTES}",
        *(f"-Wl,--export={name}" for name in names),
    )
