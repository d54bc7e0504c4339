"""The decision log: every match that mattered, applied or refused, as one line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from cuvil_build.fusion.gain import Cost
from cuvil_build.fusion.trust import Trust

ID_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Decision:
    rule: str
    granularity: str
    stage: str
    nodes: tuple[str, ...]
    """Names of the source model's nodes."""
    applied: bool
    fusion_src: int
    """Bit mask, by the rules in the order of their names, of those that claimed the region."""
    saved: Cost
    """Predicted, for one run at typical sizes."""
    trust: Trust
    contested_by: tuple[str, ...] = ()
    """Other rules that could have had some of the nodes."""
    review: bool = False
    """Whether a person should look at it."""
    function: str = ""
    """Of an applied fusion."""
    refused_by: str = ""
    """The constraint that said no."""
    override: str = ""
    """The entry of the override file that decided, as `deny fusion.overrides.yaml:3`."""

    @property
    def id(self) -> str:
        """The same as long as the rule and the nodes are."""
        text = json.dumps([self.rule, list(self.nodes), self.stage])
        return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

    @property
    def decision_trust(self) -> float:
        return self.trust.decision

    @property
    def bytes_saved(self) -> int:
        return self.saved.bytes

    @property
    def flops_saved(self) -> int:
        """Below zero where the region computes again what it does not keep."""
        return self.saved.flops

    @property
    def gain(self) -> int:
        """Predicted nanoseconds of the reference machine."""
        return self.saved.nanoseconds

    def to_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "rule": self.rule,
            "granularity": self.granularity,
            "stage": self.stage,
            "nodes": list(self.nodes),
            "applied": self.applied,
            "fusion_src": self.fusion_src,
            "bytes_saved": self.bytes_saved,
            "flops_saved": self.flops_saved,
            "gain": self.gain,
            "decision_trust": round(self.decision_trust, 4),
            "trust": self.trust.to_json(),
            "contested_by": list(self.contested_by),
            "review": self.review,
            **({"function": self.function} if self.function else {}),
            **({"refused_by": self.refused_by} if self.refused_by else {}),
            **({"override": self.override} if self.override else {}),
        }


def decisions_text(decisions: Iterable[Decision]) -> str:
    """JSON lines."""
    return "".join(f"{json.dumps(d.to_json(), separators=(',', ':'))}\n" for d in decisions)
