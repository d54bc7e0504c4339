"""Functions of emitted C, cut so that none is too long for compilers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

STATEMENTS = 64
"""Of one function: compilers are slow on large ones."""


@dataclass(frozen=True, slots=True)
class CFunction:
    signature: str
    lines: list[str]


def split_function(name: str, parameters: str, arguments: str, lines: list[str]) -> list[CFunction]:
    """One function, or several that the last one calls."""
    if len(lines) <= STATEMENTS:
        return [CFunction(f"static void {name}({parameters})", indented(lines or ["(void)v;"]))]
    parts = [lines[i : i + STATEMENTS] for i in range(0, len(lines), STATEMENTS)]
    functions = [
        CFunction(f"static void {name}_part{i}({parameters})", indented(part)) for i, part in enumerate(parts)
    ]
    calls = [f"{name}_part{i}{arguments};" for i in range(len(parts))]
    return [*functions, CFunction(f"static void {name}({parameters})", indented(calls))]


def indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
