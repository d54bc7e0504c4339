"""Operands of a matrix product: what each is, and the axes that its address depends on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cuvil_build.cuir.int_expr import ZERO, IntExpr
from cuvil_build.kernel.expr import Const, Expr, Load, Within
from cuvil_build.kernel.nest import Axis

Condition = tuple[IntExpr, IntExpr, IntExpr]


@dataclass(frozen=True, slots=True)
class Operand:
    load: Load
    conditions: tuple[Condition, ...]
    offset: IntExpr
    """In elements, affine in every axis."""

    def step(self, axis: Axis) -> IntExpr:
        found = self.offset.coefficient(axis.name)
        assert found is not None
        return found

    def symbols(self) -> frozenset[str]:
        return self.offset.symbols().union(*(i.symbols() for c in self.conditions for i in c))


def find_operand(expr: Expr, axes: tuple[Axis, ...]) -> Operand | None:
    """The factor of a product as an operand; None where tiles can't read it."""
    conditions: tuple[Condition, ...] = ()
    if isinstance(expr, Within):
        zero = isinstance(expr.otherwise, Const) and expr.otherwise.value == 0
        if not zero or not isinstance(expr.value, Load):
            return None
        conditions, expr = expr.conditions, expr.value
    if not isinstance(expr, Load) or expr.buffer.role == "temp":
        return None
    offset = offset_of(expr, axes)
    if offset is None:
        return None
    affine = all(p.coefficient(a.name) is not None for c in conditions for p in c for a in axes)
    return Operand(expr, conditions, offset) if affine else None


def offset_of(load: Load, axes: tuple[Axis, ...]) -> IntExpr | None:
    """Element offset of a load; None unless it is affine in the axes."""
    total = ZERO
    for index, stride in zip(load.index, load.buffer.strides(), strict=True):
        if not isinstance(index, IntExpr):
            return None
        total = total + index * stride
    names = {a.name for a in axes}
    for axis in axes:
        factor = total.coefficient(axis.name)
        if factor is None or factor.symbols() & names:
            return None
    return total


def mentions(condition: Condition, axis: Axis) -> bool:
    return any(axis.name in part.symbols() for part in condition)


def any_mentions(conditions: Iterable[Condition], axis: Axis) -> bool:
    return any(mentions(c, axis) for c in conditions)
