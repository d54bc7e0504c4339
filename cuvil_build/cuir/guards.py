"""Guards: what must hold when a node runs and could not be proved when the model was built."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from cuvil_build.cuir.int_expr import IntExpr

GUARDS_KEY = "cuvil.guards"
RELATIONS = ("==", "!=", "<=")
_HOLDS = {"==": operator.eq, "!=": operator.ne, "<=": operator.le}


@dataclass(frozen=True, slots=True)
class Guard:
    """`left relation right`, checked at the latest before the node that carries it runs."""

    left: IntExpr
    relation: str
    right: IntExpr
    message: str
    """What the relation is about, for the person whose input breaks it."""

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """At sizes of all symbols that it has."""
        left, right = self.left.evaluate(sizes), self.right.evaluate(sizes)
        return bool(_HOLDS[self.relation](left, right))

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right} ({self.message})"


def read_guards(node: ir.Node) -> tuple[Guard, ...]:
    """Guards that a pass left on the node; those that inference finds are not stored."""
    rows = json.loads(node.metadata_props.get(GUARDS_KEY, "[]"))
    return tuple(Guard(IntExpr.parse(a), relation, IntExpr.parse(b), text) for a, relation, b, text in rows)


def add_guards(node: ir.Node, guards: Iterable[Guard]) -> None:
    rows = {g: [str(g.left), g.relation, str(g.right), g.message] for g in (*read_guards(node), *guards)}
    if rows:
        node.metadata_props[GUARDS_KEY] = json.dumps(list(rows.values()), separators=(",", ":"))
