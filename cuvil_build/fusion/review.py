"""What a build that is strict about fusion says of decisions that nobody has made."""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence

from cuvil_build.errors import FusionReview
from cuvil_build.fusion.decisions import Decision

SHOWN = 20
SHOWN_NODES = 6


def fusion_review(decisions: Sequence[Decision]) -> FusionReview:
    """All of them, and the lines that would decide the first."""
    count = len(decisions)
    lines = [f"  {_told(decision)}" for decision in decisions[:SHOWN]]
    if count > SHOWN:
        lines.append(f"  and {count - SHOWN} more")
    head = f"{count} fusion decision{'s are' if count > 1 else ' is'} left for a person to make"
    first = decisions[0]
    hint = [
        "decide in the file that fusion.overrides names; for the first, one of",
        f"    deny: [{{rule: {first.rule}, nodes: {_quoted(glob.escape(first.nodes[0]))}}}]",
        f"    force: [{{rule: {first.rule}, nodes: {_quoted(glob.escape(first.nodes[0]))}}}]",
        f"    pin: [{{rule: {first.rule}, nodes: [{', '.join(map(_quoted, first.nodes))}]}}]",
    ]
    return FusionReview("\n".join([head, *lines]), hint="\n".join(hint))


def _told(decision: Decision) -> str:
    names = ", ".join(f"'{name}'" for name in decision.nodes[:SHOWN_NODES])
    more = len(decision.nodes) - SHOWN_NODES
    nodes = f"{names} and {more} more" if more > 0 else names
    contested = ", ".join(decision.contested_by)
    reason = f"contested by {contested}" if contested else "a gain on some CPUs and a loss on others"
    return f"rule '{decision.rule}' on {nodes}: trust {decision.decision_trust:.2f}, {reason}"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
