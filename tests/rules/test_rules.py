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
from tests.rules.cases import RuleCase, read_cases, with_result, write_cases

HERE = Path(__file__).parent
RULES = paths.find_yaml("rules")
FILES = sorted(HERE.glob("*.case"))
CASES = [(file.stem, case) for file in FILES for case in read_cases(file)[1]]


def rule_of(name: str) -> Rule:
    return load_rule(RULES[name])


def apply_rule(rule: Rule, text: str) -> tuple[ir.Model, FusionResult]:
    """The graph before, and what the rule made of it."""
    model = parse_model(text)
    infer_model(model)
    verify(model)
    before = model.clone()
    result = fuse_graph(model, [rule])
    verify(model)
    return before, result


def refusals(result: FusionResult) -> tuple[str, ...]:
    return tuple(d.refused_by for d in result.decisions if not d.applied)


def test_every_rule_has_a_case_file_and_every_file_a_rule() -> None:
    assert sorted(RULES) == [file.stem for file in FILES]
    for file in FILES:
        rule, cases = read_cases(file)
        assert rule == file.stem and cases


if "CUVIL_UPDATE_CASES" in os.environ:

    def test_update_cases() -> None:
        for file in FILES:
            rule, cases = read_cases(file)
            results = [apply_rule(rule_of(rule), case.before)[1] for case in cases]
            new = [with_result(c, print_graph(r.model), refusals(r)) for c, r in zip(cases, results)]
            write_cases(file, rule, new)


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{n}: {c.title}" for n, c in CASES])
def test_case(name: str, case: RuleCase) -> None:
    before, result = apply_rule(rule_of(name), case.before)
    assert print_graph(result.model).strip() == case.after
    assert refusals(result) == case.refused
    inputs = [input_spec(value) for value in before.graph.inputs]
    for feeds in random_samples(inputs, {}, name, cases=3):
        want = run_reference(before, feeds).outputs
        found = compare(run_reference(result.model, feeds).outputs, want)
        assert found.passed, found.describe()


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{n}: {c.title}" for n, c in CASES])
def test_a_second_run_changes_nothing(name: str, case: RuleCase) -> None:
    _, result = apply_rule(rule_of(name), case.before)
    once = print_graph(result.model)
    again = fuse_graph(result.model, [rule_of(name)])
    assert print_graph(again.model) == once


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{n}: {c.title}" for n, c in CASES])
def test_regions_lower(name: str, case: RuleCase) -> None:
    _, result = apply_rule(rule_of(name), case.before)
    lowered = lower_graph(result.model, result.inference, lambda _, rank: tuple(range(rank)))
    assert lowered.body.items
