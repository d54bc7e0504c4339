"""Finds operators: one file per operator or row family of this folder."""

from __future__ import annotations

from functools import cache

from cuvil_build import catalog
from cuvil_build.ops.operator import Operator


def find(domain: str, op_type: str) -> Operator | None:
    """The operator, or None where we have none."""
    return operators().get(("" if domain == "ai.onnx" else domain, op_type))


@cache
def operators() -> dict[tuple[str, str], Operator]:
    """All operators by (domain, name), in sorted order."""
    found: dict[str, Operator] = catalog.discover("cuvil_build.ops", ("OP", "OPS"))
    return {op.key: op for op in sorted(found.values(), key=lambda op: op.key)}


def all_operators() -> tuple[Operator, ...]:
    """Sorted by domain and name."""
    return tuple(operators().values())
