"""Relations between symbolic sizes: which hold always, which never, and which condition of a graph is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnx_ir as ir

from cuvil_build.cuir.dims import Canonical
from cuvil_build.cuir.guards import Guard
from cuvil_build.cuir.int_expr import Bounds, IntExpr
from cuvil_build.ops.operator import Known

UNBOUNDED_BELOW = -(1 << 62)
_SEEN_THROUGH = ("Cast", "Identity", "Not", "Reshape", "Squeeze", "Unsqueeze")
_RELATIONS = {
    # Operator: our relation, whether sides swap, what is added to the left side.
    "Equal": ("==", False, 0),
    "Greater": ("<=", True, 1),
    "GreaterOrEqual": ("<=", True, 0),
    "Less": ("<=", False, 1),
    "LessOrEqual": ("<=", False, 0),
}


class Relations:
    """What is known of sizes: the bounds of their symbols, and what was checked already."""

    def __init__(self, canonical: Canonical, ranges: Mapping[str, Bounds]) -> None:
        self.canonical = canonical
        canonical.learn(ranges)
        self.ranges = ranges
        """Of every symbol; the owner adds to it as it meets new ones."""
        self.proved: set[tuple[IntExpr, str, IntExpr]] = set()
        """Relations that a guard of this scope or an outer one has checked already."""

    @contextmanager
    def scope(self) -> Iterator[None]:
        kept = set(self.proved)
        yield
        self.proved = kept

    def is_equal(self, left: IntExpr, right: IntExpr) -> bool | None:
        left, right = self.canonical(left), self.canonical(right)
        if left == right or (left, "==", right) in self.proved or (right, "==", left) in self.proved:
            return True
        gap = self.canonical(left - right)
        if gap.is_static:
            return gap.value == 0
        low, high = self.bounds(gap)
        if low > 0 or (high is not None and high < 0):
            return False
        if low == high == 0:
            return True
        (left_low, left_high), (right_low, right_high) = self.bounds(left), self.bounds(right)
        apart = (left_high is not None and left_high < right_low) or (
            right_high is not None and right_high < left_low
        )
        return False if apart else None

    def bounds(self, expr: IntExpr) -> Bounds:
        return self.canonical(expr).bounds(self.ranges) or (UNBOUNDED_BELOW, None)

    def holds(self, left: IntExpr, relation: str, right: IntExpr) -> bool | None:
        if relation == "==":
            return self.is_equal(left, right)
        low, high = self.bounds(right - left)
        if low >= 0:
            return True
        return False if high is not None and high < 0 else None

    def denied(self, left: IntExpr, relation: str, right: IntExpr, message: str) -> Guard:
        if relation == "<=":
            return Guard(right + 1, "<=", left, message)
        low, high = self.bounds(left - right)
        if low >= 0:
            return Guard(right + 1, "<=", left, message)
        if high is not None and high <= 0:
            return Guard(left + 1, "<=", right, message)
        return Guard(left, "!=", right, message)


def condition_of(
    value: ir.Value, known: Mapping[ir.Value, Known]
) -> tuple[IntExpr, str, IntExpr, bool] | None:
    """(left, relation, right, positive) of a condition over dims, seen through casts and views."""
    node = value.producer()
    positive = True
    while node is not None and node.op_type in _SEEN_THROUGH and node.domain == "":
        source = node.inputs[0]
        assert source is not None
        content = single_content(known[source])
        is_number = known[source].dtype.kind != "bool"
        if node.op_type == "Cast" and is_number and content is not None:
            return content, "==", IntExpr.of(0), not positive
        positive = positive != (node.op_type == "Not")
        node = source.producer()
    if node is None or node.domain != "" or node.op_type not in _RELATIONS:
        return None
    sides = [None if v is None else single_content(known[v]) for v in node.inputs]
    if None in sides or len(sides) != 2:
        return None
    left, right = sides
    assert left is not None and right is not None
    name, swap, add = _RELATIONS[node.op_type]
    if swap:
        left, right = right, left
    return left + add, name, right, positive


def single_content(known: Known) -> IntExpr | None:
    """The integer that a value of one element holds, where it is known."""
    if known.contents is None or known.contents.size != 1:
        return None
    return IntExpr.of(known.contents.reshape(-1)[0])
