"""What part of a run each fused region takes, as the project's last `cuvil bench --profile` found it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from cuvil_build.cli.bench.kernels import profile_file
from cuvil_build.errors import InvalidValue
from cuvil_build.fusion.explain import DecisionRow

Shares = Mapping[frozenset[str], float]
"""By the nodes that a call computes."""


def read_shares(project: Path, variants: Iterable[str]) -> Shares:
    """Of the first variant that has a profile; empty without one."""
    path = next((p for p in (profile_file(project, v) for v in variants) if p.is_file()), None)
    if path is None:
        return {}
    found: dict[frozenset[str], float] = {}
    try:
        for kernel in json.loads(path.read_text(encoding="utf-8"))["profile"]:
            for call in kernel["calls"]:
                nodes = frozenset(str(call["nodes"]).split(", "))
                found[nodes] = found.get(nodes, 0.0) + float(call["share"])
    except (ValueError, KeyError, TypeError):
        raise InvalidValue(
            f"'{path}' is no profile", hint="'cuvil bench --profile' writes a new one"
        ) from None
    return found


def share_of(row: DecisionRow, shares: Shares) -> float | None:
    """Of the calls that compute nothing but the region's nodes; a call names the first of many."""
    nodes = set(row.nodes)
    mine = [share for computed, share in shares.items() if computed <= nodes]
    return sum(mine) if row.applied and mine else None
