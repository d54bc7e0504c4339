"""Gives nodes of a quantised graph their floats back until the gate holds, for as few bytes as it finds.

Nodes are ranked by the error that each makes alone, per byte that it saves. The shortest beginning of that
list that holds is found by doubling and halving; then nodes are taken out again, those first that make the
least error, in groups that are halved where they do not go as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cuvil_build.quantize.accept import Gate

Evaluate = Callable[[frozenset[str]], float]
"""The metric where these nodes are floats again."""

ENOUGH = "nothing had to be restored"
MINIMAL = "it holds, and each of these layers was tried to be left out"
HOLDS = "it holds; the budget ended before every layer was tried to be left out"
REFUSED = "it does not hold, and the budget ended"
HOPELESS = "it does not hold with all layers restored"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that can be restored."""

    node: str
    saved: int
    """Bytes that are given up with it."""
    sqnr: float
    """Where only this node is quantised, in dB."""

    @property
    def noise(self) -> float:
        return float(10 ** (-self.sqnr / 10))

    @property
    def gain(self) -> float:
        return self.noise / max(self.saved, 1)


@dataclass(frozen=True, slots=True)
class Trial:
    number: int
    """0 is the policy as it is, which costs no budget."""
    phase: str
    """`start`, `restore`, or `leave out`."""
    restored: tuple[str, ...]
    saved: int
    """Bytes that are given up."""
    value: float
    holds: bool


@dataclass(frozen=True, slots=True)
class Found:
    """Where the search ended: what holds for the fewest bytes, or what comes nearest."""

    trials: tuple[Trial, ...]
    budget: int
    end: str
    best: Trial

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every trial, and at last the end."""
        yield from (asdict(trial) for trial in self.trials)
        yield {"end": self.end, "budget": self.budget, **asdict(self.best)}


@dataclass(slots=True)
class _Search:
    candidates: Mapping[str, Candidate]
    evaluate: Evaluate
    gate: Gate
    budget: int
    trials: list[Trial] = field(default_factory=list)

    def spent(self) -> bool:
        return len(self.trials) > self.budget

    def holds(self, phase: str, restored: Sequence[str]) -> bool | None:
        """None where the budget is spent; what was tried is not tried again."""
        names = tuple(sorted(restored))
        known = next((t for t in self.trials if t.restored == names), None)
        if known is not None:
            return known.holds
        if self.spent():
            return None
        value = self.evaluate(frozenset(names))
        saved = sum(self.candidates[name].saved for name in names)
        self.trials.append(Trial(len(self.trials), phase, names, saved, value, self.gate.holds(value)))
        return self.trials[-1].holds

    def found(self, end: str) -> Found:
        good = [trial for trial in self.trials if trial.holds]
        if good:
            best = min(good, key=lambda t: (t.saved, len(t.restored), t.number))
        else:
            best = self.trials[0]
            for trial in self.trials[1:]:
                best = trial if self.gate.is_better(trial.value, best.value) else best
        return Found(tuple(self.trials), self.budget, end, best)


def search(
    candidates: Sequence[Candidate], start: float, evaluate: Evaluate, gate: Gate, budget: int
) -> Found:
    """`start` is the metric where nothing is restored."""
    run = _Search({c.node: c for c in candidates}, evaluate, gate, budget)
    run.trials.append(Trial(0, "start", (), 0, start, gate.holds(start)))
    if gate.holds(start):
        return run.found(ENOUGH)
    ranked = [c.node for c in sorted(candidates, key=lambda c: (-c.gain, c.node))]
    kept = _shortest(run, ranked)
    if kept is None:
        everything = any(len(t.restored) == len(ranked) for t in run.trials)
        return run.found(HOPELESS if everything else REFUSED)
    return run.found(MINIMAL if _leave_out(run, kept) else HOLDS)


def _shortest(run: _Search, ranked: Sequence[str]) -> list[str] | None:
    """The shortest beginning that holds, as far as the budget goes; None where none was found."""
    low, high = 0, min(1, len(ranked))
    while high > low and not run.holds("restore", ranked[:high]):
        if run.spent():
            return None
        low, high = high, min(2 * high, len(ranked))
    if high == low:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        answer = run.holds("restore", ranked[:middle])
        if answer is None:
            break
        low, high = (low, middle) if answer else (middle, high)
    return list(ranked[:high])


def _leave_out(run: _Search, kept: Sequence[str]) -> bool:
    """Whether all were tried."""
    order = sorted(kept, key=lambda name: (run.candidates[name].noise, name))
    left = set(order)
    groups = [order]
    while groups:
        group = groups.pop()
        without = left - set(group)
        answer = run.holds("leave out", sorted(without))
        if answer is None:
            return False
        if answer:
            left = without
        elif len(group) > 1:
            half = len(group) // 2
            groups += [group[half:], group[:half]]
    return True
