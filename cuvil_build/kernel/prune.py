"""Drops integers and pointers that a program names and never uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.program import Assign, Declare, Pointer, Program, SetInt, SetIntFrom, Statement

_NAMES = ("pointer", "base", "otherwise", "array", "function")
"""Fields that refer to something by name."""


def prune(program: Program) -> Program:
    """The program without unused names; repeated, since names are used by others."""
    while True:
        used = set(_used(program))
        body = _kept(program.body, used)
        functions = tuple(replace(f, body=_kept(f.body, used)) for f in program.functions)
        if (body, functions) == (program.body, program.functions):
            return program
        program = replace(program, body=body, functions=functions)


def _kept(statements: Iterable[Statement], used: set[str]) -> tuple[Statement, ...]:
    return tuple(
        _inside(s, used)
        for s in statements
        if not (isinstance(s, SetInt | SetIntFrom | Pointer | Declare | Assign) and s.name not in used)
    )


def _inside(statement: Statement, used: set[str]) -> Statement:
    changes: dict[str, Any] = {}
    for name in ("body", "then", "cases"):
        part = getattr(statement, name, None)
        if part is None:
            continue
        changes[name] = tuple((n, _kept(b, used)) for n, b in part) if name == "cases" else _kept(part, used)
    if "then" in changes:
        changes["otherwise"] = _kept(getattr(statement, "otherwise", ()), used)
    return replace(statement, **changes) if changes else statement


def _used(item: Any) -> Iterator[str]:
    if isinstance(item, IntExpr):
        yield from item.symbols()
    elif isinstance(item, tuple):
        for part in item:
            yield from _used(part)
    elif isinstance(item, str):
        # A pointer in a tuple of (name, offset): an argument of a local function.
        yield item
    elif is_dataclass(item):
        for entry in fields(item):
            value = getattr(item, entry.name)
            if isinstance(value, str):
                if entry.name in _NAMES or type(item).__name__ == "Var":
                    yield value
            else:
                yield from _used(value)
