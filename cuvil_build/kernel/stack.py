"""How many bytes of arrays a loop program keeps on the stack."""

from __future__ import annotations

from collections.abc import Iterable

from cuvil_build.kernel.program import For, If, LocalArray, Program, Statement, Switch, While

_ALIGNMENT = 64


def array_bytes(program: Program) -> int:
    """Of all arrays of the kernel and of its local functions, as if all were alive at once."""
    bodies = (program.body, *(function.body for function in program.functions))
    return sum(_bytes(body) for body in bodies)


def _bytes(body: Iterable[Statement]) -> int:
    total = 0
    for statement in body:
        if isinstance(statement, LocalArray):
            nbytes = statement.count * statement.dtype.nbytes
            total += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        elif isinstance(statement, (For, While)):
            total += _bytes(statement.body)
        elif isinstance(statement, If):
            total += _bytes(statement.then) + _bytes(statement.otherwise)
        elif isinstance(statement, Switch):
            total += sum(_bytes(case) for _, case in statement.cases)
    return total
