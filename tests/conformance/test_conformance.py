"""ONNX's backend tests: a fixed part of those that pass; all of them with `-m slow`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.cases import (
    DIRECT,
    EXPANDED,
    LIGHT,
    exclusion_of,
    is_counted,
    load_cases,
    load_exclusions,
)
from tests.conformance.report import REPORT, expected_names
from tests.conformance.suite import Result, Settings, run_cases

STEP = 8


def part() -> list[str]:
    """Every eighth of the tests that must pass. They are in order of names, so that an operator's tests stand
    side by side; the large networks are on demand."""
    large = {c.name for c in load_cases() if c.category == LIGHT}
    return [name for name in expected_names() if name not in large][::STEP]


PART = part()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    folder = tmp_path_factory.mktemp("conformance")
    wanted = set(PART)
    cases = [c for c in load_cases() if c.name in wanted]
    return {r.name: r for r in run_cases(cases, Settings(folder / "modules", folder / "objects"))}


@pytest.mark.parametrize("name", PART)
def test_passes_on_a_module(results: dict[str, Result], name: str) -> None:
    result = results[name]
    assert result.status == "pass", f"{result.stage}: {result.error}"


@pytest.mark.slow
def test_all_that_passed_pass_still(tmp_path: Path) -> None:
    found = run_cases(load_cases(), Settings(tmp_path / "modules", tmp_path / "objects"))
    passing = {r.name for r in found if r.status == "pass"}
    assert not set(expected_names()) - passing


def test_the_counted_set_is_the_one_that_tools_are_compared_by() -> None:
    counted: Counter[str] = Counter()
    for case in load_cases():
        counted[case.category] += is_counted(case.name)
    assert (counted[DIRECT], counted[EXPANDED]) == (1332, 471)


def test_exclusions_name_tests_once_and_none_that_must_pass() -> None:
    names = [name for exclusion in load_exclusions() for name in exclusion.tests]
    assert len(names) == len(set(names))
    assert set(names) <= {c.name for c in load_cases()}
    assert not [name for name in expected_names() if exclusion_of(name) is not None]


def test_the_report_and_the_list_are_of_one_run() -> None:
    text = REPORT.read_text(encoding="utf-8")
    total = next(line for line in text.splitlines() if line.startswith("| **all** |"))
    assert int(total.split("|")[5]) == len(expected_names())
    failing = text.partition("## Not passing")[2].partition("## Passing with")[0]
    named = {line.split("`")[1] for line in failing.splitlines() if line.startswith("| `")}
    excluded = {name for e in load_exclusions() if not e.run for name in e.tests}
    assert named | excluded | set(expected_names()) == {c.name for c in load_cases()}
    assert not named & set(expected_names())
