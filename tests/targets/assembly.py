"""Loops of compiled kernels, read from the compiler's assembly."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cuvil_build.target.descriptor import Target
from cuvil_build.toolchain.command import compile_flags
from cuvil_build.toolchain.find import closed_environment, find_toolchain

_LABEL = re.compile(r"^(\.?L[\w.$]+):")
_INSTRUCTION = re.compile(r"^\s+[a-z]")
_JUMP = re.compile(r"^\s+(?:j[a-z]+|b(?:\.[a-z]+)?|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.?L[\w.$]+)\s*$")
_STACK = re.compile(r"\((?:%rsp|%rbp)\)|\[(?:sp|x29)(?:\]|,\s*$)")
"""Without an index: with one, it is an array of the kernel's own."""
_SETS = re.compile(r"^\s+(?:add|sub|mov)\s+x29,|^\s+ld[pr].*\[x29\],")
"""A frame pointer stays where it is: what a loop sets is a register like any other."""
_MULTIPLY_ADD = re.compile(r"^\s+(?:vfn?m(?:add|sub)\d*[ps]s|fml[as]|fmadd)\b")


@dataclass(frozen=True, slots=True)
class Loop:
    """An innermost loop."""

    lines: tuple[str, ...]

    @property
    def instructions(self) -> list[str]:
        return [line.strip() for line in self.lines if _INSTRUCTION.match(line)]

    @property
    def multiply_adds(self) -> list[str]:
        return [line.strip() for line in self.lines if _MULTIPLY_ADD.match(line)]

    @property
    def stack_accesses(self) -> list[str]:
        sets = any(_SETS.match(line) for line in self.lines)
        lines = [line.strip() for line in self.lines if _STACK.search(line)]
        return [line for line in lines if not (sets and "[x29" in line)]


def assembly_of(source: str, target: Target, folder: Path) -> str:
    toolchain = find_toolchain("zig")
    file, output = folder / "kernel.c", folder / "kernel.s"
    file.write_text(source)
    # zig adds a flag of its own that -S makes useless, and warns of it
    flags = [flag for flag in compile_flags(toolchain, target) if flag != "-Werror"]
    command = [*toolchain.command, *flags, "-S", str(file), "-o", str(output)]
    subprocess.run(command, env=closed_environment(toolchain), check=True, capture_output=True, timeout=120)
    return output.read_text()


def inner_loops(assembly: str) -> list[Loop]:
    """From a label to a jump back to it, with no other such pair in between."""
    lines = [line.split("//")[0].split("#")[0].rstrip() for line in assembly.splitlines()]
    labels = {match[1]: n for n, line in enumerate(lines) if (match := _LABEL.match(line))}
    found: list[tuple[int, int]] = []
    for n, line in enumerate(lines):
        jump = _JUMP.match(line)
        start = labels.get(jump[1], n) if jump else n
        if start < n and not any(start <= first and last < n for first, last in found):
            found.append((start, n))
    return [Loop(tuple(lines[first : last + 1])) for first, last in found]


def busiest_loop(assembly: str) -> Loop:
    """The innermost loop with most multiply-adds: where a product spends its time."""
    return max(inner_loops(assembly), key=lambda loop: len(loop.multiply_adds))
