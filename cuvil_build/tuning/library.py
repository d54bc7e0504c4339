"""Kernels of different schedules as one library that this machine can load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cuvil_build.codegen.module import RUNTIME_FOLDER
from cuvil_build.codegen.plan import KernelSpec
from cuvil_build.codegen.stack_bound import frame_limit, kernel_frame
from cuvil_build.errors import CompileFailed
from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain.command import compile_command, link_command, run_command
from cuvil_build.toolchain.find import find_toolchain

REPEAT = Path(__file__).parent / "repeat.c"
TABLE = "cuvil_candidates"
"""The library's table of kernels, in the order that they were given in."""
_HEAD = """#include <stdint.h>
typedef void cuvil_kernel(void *const *, const int64_t *, int64_t, int64_t, void *);
"""


class CandidateBuilder:
    """Compiles with the flags that a build would compile with."""

    def __init__(self, toolchain: str, target: Target, folder: Path) -> None:
        self._toolchain = find_toolchain(toolchain)
        self._target = target
        self._folder = folder
        self._libraries = 0

    def compile(self, specs: Sequence[KernelSpec]) -> list[bool]:
        """Whether the compiler takes each: it may refuse a kernel whose frame is too large, say."""
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return list(pool.map(self._compiles, specs))

    def _compiles(self, spec: KernelSpec) -> bool:
        source = self._folder / f"{spec.symbol}.c"
        output = source.with_suffix(".o")
        if not output.exists():
            source.write_text(spec.source)
            flags = ["-fvisibility=hidden", frame_limit(kernel_frame(spec))]
            try:
                self._compile(source, output, flags)
            except CompileFailed:
                return False
        return True

    def link(self, symbols: Sequence[str]) -> Path:
        """A library of kernels whose objects are there."""
        self._libraries += 1
        table = self._folder / f"table{self._libraries}.c"
        declared = "".join(f"extern cuvil_kernel {symbol};\n" for symbol in sorted(set(symbols)))
        rows = ", ".join(symbols)
        visible = '__attribute__((visibility("default")))'
        table.write_text(f"{_HEAD}{declared}{visible} cuvil_kernel *const {TABLE}[] = {{{rows}}};\n")
        parts = [self._folder / f"{symbol}.o" for symbol in sorted(set(symbols))]
        for source in (table, REPEAT):
            parts.append(self._folder / f"{source.stem}.o")
            if not parts[-1].exists():
                self._compile(source, parts[-1], [])
        library = self._folder / f"candidates{self._libraries}{self._target.library_suffix}"
        run_command(link_command(self._toolchain, self._target, parts, library))
        return library

    def _compile(self, source: Path, output: Path, flags: Sequence[str]) -> None:
        run_command(
            compile_command(self._toolchain, self._target, source, output, [RUNTIME_FOLDER], tuple(flags))
        )
