"""Drops integers and pointers that a program names and never uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.kernel.program import Assign, Declare, Pointer, Program, SetInt, SetIntFrom, Statement, Var

_NAMES = ("pointer", "base", "otherwise", "array", "function")
"""Fields that refer to something by name."""
_NAMED = (SetInt, SetIntFrom, Pointer, Declare, Assign)
"""Statements that only give a name a value."""


def prune(program: Program) -> Program:
    """The program without names that nothing uses, or only what is unused itself."""
    used = names_used(program)
    functions = tuple(replace(f, body=_kept(f.body, used)) for f in program.functions)
    return replace(program, body=_kept(program.body, used), functions=functions)


def _kept(statements: Iterable[Statement], used: set[str]) -> tuple[Statement, ...]:
    return tuple(_inside(s, used) for s in statements if not (isinstance(s, _NAMED) and s.name not in used))


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


def names_used(*roots: Any) -> set[str]:
    """What statements read, call or point to, by name. What a name is made from counts where it is used."""
    found: set[str] = set()
    seen: set[int] = set()
    idle: dict[str, list[Any]] = {}
    """Statements whose names nothing has used so far."""
    waiting: list[Any] = [*roots]

    def use(names: Iterable[str]) -> None:
        for name in names:
            if name not in found:
                found.add(name)
                waiting.extend(idle.pop(name, ()))

    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            # A pointer in a tuple of (name, offset): an argument of a local function.
            use((item,))
        elif isinstance(item, _NAMED) and item.name not in found:
            idle.setdefault(item.name, []).append(item)
        elif id(item) not in seen:
            seen.add(id(item))
            if isinstance(item, tuple):
                waiting.extend(item)
            elif isinstance(item, IntExpr):
                use(item.symbols())
            else:
                for name, refers in _fields(item.__class__):
                    value = getattr(item, name)
                    if not isinstance(value, str):
                        waiting.append(value)
                    elif refers:
                        use((value,))
    return found


@cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """Names of a record's fields, with whether a text in it refers to something; none of other types."""
    if not is_dataclass(kind):
        return ()
    return tuple((f.name, f.name in _NAMES or kind is Var) for f in fields(kind))
