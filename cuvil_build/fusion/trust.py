"""How far a decision may be trusted: a number from 0 to 1, of committed data alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TOLERANCE = 1e-4
"""Relative error that a fused float32 graph may have against the graph that it was made from."""
UNMEASURED = 0.9
"""The factor for what nobody has measured: a rule without `error`, a kind of kernel without calibration."""
ENOUGH = 0.75
"""A contested decision that is trusted less is for a person to review."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Three factors; the decision's trust is their product."""

    pattern: float
    """How sure the rule is that its gain is real: its `trust`, a number or a formula."""
    model: float
    """How near predicted speed-ups of regions with this kind of anchor came to measured ones."""
    numeric: float
    """How much of the tolerance the rule's own cases leave."""

    @property
    def decision(self) -> float:
        return self.pattern * self.model * self.numeric

    @property
    def is_low(self) -> bool:
        return self.decision < ENOUGH

    def to_json(self) -> dict[str, float]:
        return {
            "pattern": round(self.pattern, 4),
            "model": round(self.model, 4),
            "numeric": round(self.numeric, 4),
        }


def read_calibration(given: object) -> dict[str, float]:
    """From the parameters of a step."""
    assert isinstance(given, Mapping)
    return {str(kind): float(error) for kind, error in given.items()}


def model_factor(kind: str, calibration: Mapping[str, float]) -> float:
    """`calibration` has mean relative errors of predictions, by kind of anchor."""
    error = calibration.get(kind)
    return UNMEASURED if error is None else 1 / (1 + error)


def numeric_factor(error: float | None) -> float:
    """1 where cases are exact, 0 where they use the whole tolerance."""
    return UNMEASURED if error is None else max(0.0, 1 - error / TOLERANCE)
