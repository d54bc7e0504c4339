"""The decision log: every match, applied or refused, as one line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    rule: str
    nodes: tuple[str, ...]
    """Names of the source model's nodes."""
    applied: bool
    fusion_src: int
    """Bit mask, by the rules in the order of their names, of those that claimed the region."""
    bytes_saved: int
    """Predicted, of memory traffic for one run at typical sizes."""
    flops_saved: int
    decision_trust: float
    function: str = ""
    """Of an applied fusion."""
    refused_by: str = ""
    """The constraint that said no."""

    def to_json(self) -> dict[str, object]:
        row: dict[str, object] = {
            "rule": self.rule,
            "nodes": list(self.nodes),
            "applied": self.applied,
            "fusion_src": self.fusion_src,
            "bytes_saved": self.bytes_saved,
            "flops_saved": self.flops_saved,
            "decision_trust": round(self.decision_trust, 4),
        }
        if self.function:
            row["function"] = self.function
        if self.refused_by:
            row["refused_by"] = self.refused_by
        return row


def decisions_text(decisions: Iterable[Decision]) -> str:
    """JSON lines."""
    return "".join(f"{json.dumps(d.to_json(), separators=(',', ':'))}\n" for d in decisions)
