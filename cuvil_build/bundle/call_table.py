"""The calls of kernels in the order in which a module has them: what a profile's times are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

FILE_NAME = "reports/calls.json"
KNOWN = (
    "flops",
    "product_flops",
    "chunks",
    "weight_bytes",
    "activation_bytes",
    "predicted_cycles",
    "limit_cycles",
)
"""What the schedules predict for a call."""


def call_table(
    calls: Iterable[Mapping[str, Any]], schedules: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A row for each call: its kernel, nodes and launch, and what is predicted of it."""
    known = {
        (str(row["kernel"]), ", ".join(nodes)): {key: row[key] for key in KNOWN if key in row}
        for row in schedules
        for nodes in row["nodes"]
    }
    return [{**call, **known.get((str(call["kernel"]), str(call["nodes"])), {})} for call in calls]
