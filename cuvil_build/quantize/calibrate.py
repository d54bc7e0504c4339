"""Runs a graph on calibration samples and notes what each of its float values was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from cuvil_build.errors import CuvilError
from cuvil_build.quantize.ranges import Range, Seen, choose
from cuvil_build.reference import Reference, ReferenceFailed
from cuvil_build.samples import Case

AT_ONCE = 64
"""Values that one session gives back: all activations of a large network at once may not fit in memory."""
Take: TypeAlias = Callable[[str, np.ndarray], None]
Stream: TypeAlias = Callable[[Sequence[str], Take], None]
"""Gives each of the named values of every calibration sample to a function, one sample after the other."""
NOTHING_RAN = "the model runs on none of the calibration samples"


class CalibrationFailed(CuvilError):
    """The model runs on none of the calibration samples, or gives NaN on all of them."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What was seen of each value, by name."""

    seen: Mapping[str, Seen] = field(default_factory=dict)
    method: str = "minmax"
    percentile: float = 99.99
    samples: int = 0

    def range_of(self, name: str) -> Range:
        """To four digits: the last bits of sums differ between machines, and scales must not."""
        low, high = choose(self.seen[name], self.method, self.percentile)
        return float(f"{low:.3e}"), float(f"{high:.3e}")


def calibrate(
    model: ir.Model,
    names: Sequence[str],
    cases: Sequence[Case],
    method: str = "minmax",
    percentile: float = 99.99,
) -> Calibrated:
    """Ends in a first pass, histograms in a second one where the method needs them."""
    seen = {name: Seen() for name in sorted(names)}
    ran = 0
    for chunk in _chunks(sorted(names)):
        reference = Reference(model, values=chunk)
        ran = _each(reference, chunk, cases, seen, fill=False)
        if method != "minmax":
            _each(reference, chunk, cases, seen, fill=True)
    if names and not ran:
        raise CalibrationFailed(NOTHING_RAN)
    return Calibrated(seen, method, percentile, ran)


def stream(model: ir.Model, names: Sequence[str], cases: Sequence[Case], take: Take) -> None:
    """Gives each value of each sample to `take`; none is kept."""
    ran = 0
    for chunk in _chunks(sorted(names)):
        reference = Reference(model, values=chunk)
        for case in cases:
            try:
                values = reference.run(case, chunk).outputs
            except ReferenceFailed:
                continue
            ran += 1
            for name, array in values.items():
                take(name, np.asarray(array))
    if names and not ran:
        raise CalibrationFailed(NOTHING_RAN)


def _each(
    reference: Reference, names: Sequence[str], cases: Sequence[Case], seen: Mapping[str, Seen], *, fill: bool
) -> int:
    ran = 0
    for case in cases:
        try:
            values = reference.run(case, names).outputs
        except ReferenceFailed:
            continue
        ran += 1
        for name, array in values.items():
            (seen[name].fill if fill else seen[name].ends)(np.asarray(array))
    return ran


def _chunks(names: Sequence[str]) -> Iterable[Sequence[str]]:
    for start in range(0, len(names), AT_ONCE):
        yield names[start : start + AT_ONCE]
