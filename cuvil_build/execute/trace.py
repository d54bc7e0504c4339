"""The trace of a build: Chrome's format, and the chain of steps that decided how long it took."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cuvil_build.execute.events import Ended
from cuvil_build.plan.node import Node


@dataclass(frozen=True, slots=True)
class CriticalPath:
    steps: tuple[str, ...]
    seconds: float


def critical_path(ended: Sequence[Ended], nodes: Mapping[str, Node]) -> CriticalPath:
    """The chain of dependent steps with the greatest sum of times."""
    times = {event.step: event.seconds for event in ended}
    best: dict[str, tuple[float, str]] = {}
    for event in sorted(ended, key=lambda e: (e.at, e.step)):
        before = [s.node for s in nodes[event.step].inputs.values() if s.node in best]
        longest = max(before, key=lambda step: (best[step][0], step), default="")
        best[event.step] = (times[event.step] + (best[longest][0] if longest else 0.0), longest)
    if not best:
        return CriticalPath((), 0.0)
    step = max(best, key=lambda name: (best[name][0], name))
    seconds, chain = best[step][0], [step]
    while best[chain[-1]][1]:
        chain.append(best[chain[-1]][1])
    return CriticalPath(tuple(reversed(chain)), seconds)


def chrome_trace(ended: Sequence[Ended], began: float) -> str:
    """Complete events in microseconds from the build's start; a step's lane is the first that is free."""
    rows: list[dict[str, object]] = []
    free: list[float] = []
    for event in sorted(ended, key=lambda e: (e.at - e.seconds, e.step)):
        start = event.at - event.seconds
        lane = next((index for index, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [event.at]
        rows.append(
            {
                "name": event.title,
                "cat": event.step.partition(":")[0],
                "ph": "X",
                "ts": round((start - began) * 1e6),
                "dur": round(event.seconds * 1e6),
                "pid": 1,
                "tid": lane + 1,
                "args": {"status": event.status},
            }
        )
    return json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}, indent=1)
