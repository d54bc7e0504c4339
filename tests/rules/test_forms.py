"""The check of spelled-out forms sees each of them without rules, and none of them with the rules."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from cuvil_build import paths
from cuvil_build.cuir.text import parse_model
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import Rule, load_rules
from cuvil_build.ops.infer import infer_model
from tests.rules import forms
from tests.rules.cases import read_cases

HERE = Path(__file__).parent

KINDS = {
    "attention": "attention",
    "attention-with-rotary-query": "attention",
    "attention-with-sink": "attention",
    "gelu-erf": "GELU with Erf",
    "gelu-tanh": "GELU with Tanh",
    "layer-norm-fast-variance": "normalization",
    "layer-norm-fast-variance-scaled": "normalization",
    "layer-norm-scaled-root": "normalization",
    "layer-norm-shifted": "normalization",
    "layer-norm-spelled-out": "normalization",
    "log-softmax-spelled-out": "softmax",
    "normalization-over-any-axis": "normalization",
    "rms-norm-scaled-root": "normalization",
    "rms-norm-spelled-out": "normalization",
    "rotary-embedding": "rotary embedding",
    "sigmoid": "sigmoid",
    "softmax-spelled-out": "softmax",
    "softplus": "softplus",
}
"""What the check calls the form that a rule is for."""
UNSEEN = {
    ("log-softmax-spelled-out", "with ReduceLogSumExp"),
    ("rotary-embedding", "halves turn apart, and are joined"),
}
UNSEEN |= {("rotary-embedding", "neighbours turn apart, and are joined")}
"""Spellings that the check does not know."""


def shipped_rules() -> list[Rule]:
    return load_rules(sorted(paths.find_yaml("rules").values()))


def left(text: str, rules: list[Rule]) -> set[str]:
    """Kinds of forms that the rules leave."""
    model = parse_model(text)
    infer_model(model)
    if rules:
        fuse_graph(model, rules)
    return {form.kind for form in forms.find_forms(model)}


def matching(rule: str) -> list[tuple[str, str]]:
    """The cases that the rule applies to."""
    cases = [c for c in read_cases(HERE / f"{rule}.case").cases if not c.refused]
    return [
        (rule, c.title) for c in cases if _ops(c.before) != _ops(c.after) and (rule, c.title) not in UNSEEN
    ]


def _ops(text: str) -> list[str]:
    return sorted(node.op_type for node in parse_model(text).graph)


@pytest.mark.parametrize(("rule", "title"), [pair for rule in KINDS for pair in matching(rule)])
def test_a_form_is_seen_without_rules_and_gone_with_them(rule: str, title: str) -> None:
    text = next(c.before for c in read_cases(HERE / f"{rule}.case").cases if c.title == title)
    assert KINDS[rule] in left(text, [])
    assert KINDS[rule] not in left(text, shipped_rules())


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("swish", "agraph (float[N, 4] x) => (float[N, 4] y) { s = Sigmoid(x)  y = Mul(x, s) }"),
        (
            "repeated operand",
            """agraph (float[N, 4] x) => (float[N, 2, 4] y) <int64[1] one = {1}>
            { u = Unsqueeze(x, one)  y = Concat <axis = 1> (u, u) }""",
        ),
        (
            "batch normalization of a convolution",
            """agraph (float[N, 1, 4] x, float[2, 1, 3] w, float[2] a) => (float[N, 2, 2] y)
            { c = Conv(x, w)  y = BatchNormalization(c, a, a, a, a) }""",
        ),
    ],
)
def test_what_passes_find_is_seen_without_them(kind: str, text: str) -> None:
    assert left(text, []) == {kind}


def test_a_denied_rule_leaves_its_form() -> None:
    text = read_cases(HERE / "attention.case").cases[0].before
    without = [rule for rule in shipped_rules() if rule.name != "attention"]
    assert left(text, without) == {"attention"}


def test_the_command_names_nodes_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
        agraph (float[N, 4] x) => (float[N, 4] y) <float one = {1}> { e = Erf(x)  y = Add(e, one) }"""
    model = onnx.parser.parse_model(text)
    model.graph.node[0].name = "the_erf"
    path = tmp_path / "strange.onnx"
    onnx.save(model, path)
    assert forms.main([str(path)]) == 1
    assert "GELU with Erf (in one kernel): the_erf" in capsys.readouterr().out
    assert forms.main([]) == 1


def test_nothing_is_left_of_what_the_fixtures_spell_out(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]>
        agraph (float[2, 4] x) => (float[2, 4] y) <float two = {2}, float eps = {0.001}>
        { p = Pow(x, two)  m = ReduceMean <axes = [-1]> (p)  e = Add(m, eps)  r = Sqrt(e)  y = Div(x, r) }"""
    path = tmp_path / "norm.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    assert forms.main([str(path)]) == 0
