"""Runs the case file of every rule: the text that the rule leaves, and that both graphs compute the same.

CUVIL_UPDATE_CASES=1 writes what the rules do now into the files; read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import onnx_ir as ir
import pytest

from cuvil_build import paths
from cuvil_build.comparison import compare
from cuvil_build.cuir.text import parse_model, print_graph
from cuvil_build.cuir.verify import verify
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.fusion.rule import Rule, load_rule
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.reference import run_reference
from cuvil_build.samples import random_samples
from tests.conftest import input_spec
from tests.rules.cases import CaseFile, RuleCase, read_cases, with_result, write_cases

HERE = Path(__file__).parent
RULES = paths.find_yaml("rules")
FILES = sorted(HERE.glob("*.case"))
CASES = [(file, case) for file in map(read_cases, FILES) for case in file.cases]
NAMES = [f"{file.rule}: {case.title}" for file, case in CASES]


def rules_of(file: CaseFile) -> list[Rule]:
    return [load_rule(RULES[name]) for name in (file.rule, *file.helpers)]


def apply_rules(file: CaseFile, text: str) -> tuple[ir.Model, FusionResult]:
    """The graph before, and what the rules made of it."""
    model = parse_model(text)
    infer_model(model)
    verify(model)
    before = model.clone()
    result = fuse_graph(model, rules_of(file))
    verify(model)
    return before, result


def refusals(file: CaseFile, result: FusionResult) -> tuple[str, ...]:
    return tuple(d.refused_by for d in result.decisions if not d.applied and d.rule == file.rule)


def test_every_rule_has_a_case_file_and_every_file_a_rule() -> None:
    assert sorted(RULES) == sorted(file.stem for file in FILES)
    for path in FILES:
        file = read_cases(path)
        assert file.rule == path.stem and file.cases


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_case_file_has_what_matches_and_what_must_not(path: Path) -> None:
    file = read_cases(path)
    results = [apply_rules(file, case.before)[1] for case in file.cases]
    applied = [any(d.applied and d.rule == file.rule for d in r.decisions) for r in results]
    assert True in applied and False in applied


if "CUVIL_UPDATE_CASES" in os.environ:

    def test_update_cases() -> None:
        for path in FILES:
            file = read_cases(path)
            results = [apply_rules(file, case.before)[1] for case in file.cases]
            new = [
                with_result(c, print_graph(r.model), refusals(file, r)) for c, r in zip(file.cases, results)
            ]
            write_cases(path, file, new)


@pytest.mark.parametrize(("file", "case"), CASES, ids=NAMES)
def test_case(file: CaseFile, case: RuleCase) -> None:
    before, result = apply_rules(file, case.before)
    assert print_graph(result.model).strip() == case.after
    assert refusals(file, result) == case.refused
    inputs = [input_spec(value) for value in before.graph.inputs]
    for feeds in random_samples(inputs, {}, file.rule, cases=3):
        want = run_reference(before, feeds).outputs
        found = compare(run_reference(result.model, feeds).outputs, want)
        assert found.passed, found.describe()


@pytest.mark.parametrize(("file", "case"), CASES, ids=NAMES)
def test_a_second_run_changes_nothing(file: CaseFile, case: RuleCase) -> None:
    _, result = apply_rules(file, case.before)
    once = print_graph(result.model)
    again = fuse_graph(result.model, rules_of(file))
    assert print_graph(again.model) == once


@pytest.mark.parametrize(("file", "case"), CASES, ids=NAMES)
def test_regions_lower(file: CaseFile, case: RuleCase) -> None:
    _, result = apply_rules(file, case.before)
    lowered = lower_graph(result.model, result.inference, lambda _, rank: tuple(range(rank)))
    assert lowered.body.items
