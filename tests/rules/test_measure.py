"""The `error` of each rule is what its cases give."""

from pathlib import Path

import pytest

from cuvil_build import paths
from cuvil_build.fusion.rule import load_rule
from tests.rules.measure import measured_error, rounded_up

HERE = Path(__file__).parent
RULES = paths.find_yaml("rules")
SLACK = 4
"""CPUs round otherwise: a committed error may be this much larger than what this one measures."""
ALWAYS = 1e-6
"""An error that is no more than this may be claimed without it being met."""


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.case")))
def test_a_rule_says_how_far_its_cases_are_off(name: str) -> None:
    error = load_rule(RULES[name]).error
    assert error is not None, f"run python -m tests.rules.measure --write {name}"
    measured = measured_error(HERE / f"{name}.case")
    assert measured <= error * SLACK, f"measured {measured:.2e}"
    assert error <= max(SLACK * rounded_up(measured), ALWAYS), f"measured {measured:.2e}"


@pytest.mark.parametrize(
    ("error", "rounded"), [(0.0, 0.0), (1e-12, 0.0), (1.2e-7, 2e-7), (2e-7, 2e-7), (9.4e-6, 1e-5)]
)
def test_errors_are_rounded_up(error: float, rounded: float) -> None:
    assert rounded_up(error) == rounded
