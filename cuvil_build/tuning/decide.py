"""Whether one schedule is faster than another: measured in turn, kept only where a test leaves no doubt.

Samples of both schedules come in pairs, next to each other in time, so that a machine that slows down or is
shared slows both. A schedule is kept when the sign test says that it is faster
by `LEAST_GAIN` in more than half of all such pairs: under the hypothesis that it is not, so many pairs that
say so have a probability below `DOUBT`. The pairs of the proof are not those that chose the candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

LEAST_GAIN = 0.03
"""Below this an entry is not worth its line."""
DOUBT = 0.001
PAIRS = 21
"""Of a proof. 18 of them must show the gain."""
SCREENING_PAIRS = 3
PROMISING = 1.02
"""Ratio from which on a candidate is worth a proof."""
NOT_SLOWER = 0.99
"""Ratio that the median must have where a gain is not asked for."""
_HOPELESS_AFTER = 7
"""Pairs after which a proof ends where not even half of them show the gain. It never ends early because it
looks good: that would find gains that are none."""

Sample = Callable[[int], float]
"""Seconds of one run of the usual schedule (0), or of the candidate (1)."""


@dataclass(frozen=True, slots=True)
class Proof:
    gain: float
    """Median of the ratios: how many times as fast the candidate is."""
    wins: int
    """Pairs in which it was faster by LEAST_GAIN."""
    pairs: int

    @property
    def doubt(self) -> float:
        return sign_test(self.wins, self.pairs)

    @property
    def holds(self) -> bool:
        return self.pairs == PAIRS and self.doubt < DOUBT and self.gain >= 1 + LEAST_GAIN


def sign_test(wins: int, pairs: int) -> float:
    """Probability of so many wins or more where each is as likely as not."""
    return sum(comb(pairs, k) for k in range(wins, pairs + 1)) / 2**pairs if pairs else 1.0


def ratios(sample: Sample, pairs: int) -> list[float]:
    """The usual time over the candidate's, for so many pairs. Each is two samples of both, in the order
    usual, candidate, candidate, usual: what gets slower steadily slows both alike."""
    found = []
    for _ in range(pairs):
        usual, candidate = sample(0), sample(1)
        candidate += sample(1)
        usual += sample(0)
        found.append(usual / candidate if candidate > 0 else 1.0)
    return found


def screen(sample: Sample) -> float:
    """A first guess at the gain."""
    return median(ratios(sample, SCREENING_PAIRS))


def prove(sample: Sample) -> Proof:
    found = ratios(sample, _HOPELESS_AFTER)
    if 2 * _wins(found) > len(found):
        found += ratios(sample, PAIRS - len(found))
    return Proof(median(found), _wins(found), len(found))


def is_not_slower(sample: Sample) -> bool:
    return median(ratios(sample, PAIRS)) >= NOT_SLOWER


def _wins(found: Sequence[float]) -> int:
    return sum(ratio >= 1 + LEAST_GAIN for ratio in found)
