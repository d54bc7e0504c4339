"""What one node's `infer` may ask of the driver."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from cuvil_build.cuir.guards import Guard
from cuvil_build.cuir.int_expr import Bounds, IntExpr, minimum
from cuvil_build.errors import ShapeMismatch
from cuvil_build.ops.inference import MeasuredDim
from cuvil_build.ops.relations import Relations


class NodeContext:
    """What one node's `infer` may ask."""

    def __init__(self, relations: Relations, node: ir.Node, symbol: Callable[[str, Bounds], str]) -> None:
        self._relations = relations
        self._node = node
        self._symbol = symbol
        self.guards: list[Guard] = []
        self.dims: list[MeasuredDim] = []

    @property
    def output_count(self) -> int:
        return len(self._node.outputs)

    def require_equal(self, left: IntExpr, right: IntExpr, what: str) -> IntExpr:
        equal = self._relations.is_equal(left, right)
        if equal is False:
            raise ShapeMismatch(f"{what}: {left} is not {right}")
        first, second = sorted(
            (self._relations.canonical(left), self._relations.canonical(right)), key=_plainness
        )
        if equal is None:
            self.guard(Guard(second, "==", first, what))
        return first

    def require_at_most(self, left: IntExpr, right: IntExpr, what: str) -> None:
        low, high = self._relations.bounds(right - left)
        if high is not None and high < 0:
            raise ShapeMismatch(f"{what}: {left} is more than {right}")
        if low < 0:
            self.guard(Guard(self._relations.canonical(left), "<=", self._relations.canonical(right), what))

    def is_equal(self, left: IntExpr, right: IntExpr) -> bool | None:
        return self._relations.is_equal(left, right)

    def bounds(self, expr: IntExpr) -> Bounds:
        return self._relations.bounds(expr)

    def measured(self, what: str, low: int = 0, high: IntExpr | None = None) -> IntExpr:
        limit = None if high is None else self._relations.bounds(high)[1]
        name = self._symbol(f"{self._node.outputs[0].name or 'value'}_{len(self.dims)}", (low, limit))
        most = self._relations.ranges[name][1]
        if most is not None and most != limit:
            high = IntExpr.of(most) if high is None else minimum(high, most)
        self.dims.append(MeasuredDim(name, low, high, f"{what} of node '{self._node.name}'"))
        return IntExpr.of(name)

    def guard(self, guard: Guard) -> None:
        fact = (guard.left, guard.relation, guard.right)
        if fact not in self._relations.proved:
            self._relations.proved.add(fact)
            self.guards.append(guard)


def _plainness(expr: IntExpr) -> tuple[bool, int, str]:
    text = str(expr)
    return not expr.is_static, len(text), text
