"""A memory plan as JSON: what `plan_memory` leaves for `codegen` and for people."""

from __future__ import annotations

from typing import Any

from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.memory.blocks import Block, MemoryPlan


def to_json(plan: MemoryPlan, blocks: tuple[Block, ...]) -> dict[str, Any]:
    return {
        "arena": str(plan.arena),
        "definitions": [[name, str(expr)] for name, expr in plan.definitions],
        "lower_bound": plan.lower_bound,
        "reference_arena": plan.reference_arena,
        "blocks": [
            {
                "name": b.name,
                "bytes": str(b.nbytes),
                "first": b.first,
                "last": b.last,
                "offset": str(plan.offsets[b.name]),
            }
            for b in sorted(blocks, key=lambda b: (b.first, b.name))
        ],
    }


def from_json(data: dict[str, Any]) -> MemoryPlan:
    return MemoryPlan(
        {row["name"]: IntExpr.parse(row["offset"]) for row in data["blocks"]},
        tuple((name, IntExpr.parse(text)) for name, text in data["definitions"]),
        IntExpr.parse(data["arena"]),
        data["lower_bound"],
        data["reference_arena"],
    )
