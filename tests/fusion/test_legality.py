"""Careless rules: what would break a model is refused, with the reason, and the model is as it was."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from cuvil_build.comparison import compare
from cuvil_build.cuir.text import parse_model, print_graph
from cuvil_build.cuir.verify import verify
from cuvil_build.errors import InvalidValue
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.fusion.rule import Rule
from cuvil_build.ops.infer import infer_model
from cuvil_build.reference import run_reference
from cuvil_build.samples import random_samples
from tests.conftest import input_spec
from tests.fusion.rule_files import rule_from


def fold(pattern: str, replacement: str, name: str = "careless", more: str = "") -> Rule:
    return rule_from(
        f"stage: fold\npattern: '{pattern}'\naction: {{replace_with: '{replacement}'}}\n{more}", name
    )


def group(pattern: str, name: str = "careless") -> Rule:
    return rule_from(f"stage: fuse\npattern: '{pattern}'\naction: fuse\n", name)


def run(text: str, *rules: Rule) -> FusionResult:
    """Both graphs compute the same, whatever the rules did."""
    model = parse_model(text)
    infer_model(model)
    before = model.clone()
    result = fuse_graph(model, rules)
    verify(model)
    for feeds in random_samples([input_spec(v) for v in before.graph.inputs], {}, "careless"):
        found = compare(run_reference(model, feeds).outputs, run_reference(before, feeds).outputs)
        assert found.passed, found.describe()
    return result


def reasons(text: str, *rules: Rule) -> set[str]:
    """Of a run in which nothing is done."""
    before = parse_model(text)
    infer_model(before)
    result = run(text, *rules)
    assert not any(decision.applied for decision in result.decisions)
    assert print_graph(result.model) == print_graph(before)
    return {decision.refused_by for decision in result.decisions}


PAIR = "(a) => (y) { t = Relu(a)  y = Tanh(t) }"
BOTH = [group(PAIR), fold(PAIR, "(a) => (y) { t = Tanh(a)  y = Relu(t) }")]


@pytest.mark.parametrize("rule", BOTH, ids=["fuse", "fold"])
def test_an_inner_value_that_is_an_output(rule: Rule) -> None:
    text = "agraph (float[N, 4] x) => (float[N, 4] t, float[N, 4] y) { t = Relu(x)  y = Tanh(t) }"
    assert reasons(text, rule) == {"value 't' is an output of its graph"}


@pytest.mark.parametrize("rule", BOTH, ids=["fuse", "fold"])
def test_an_inner_value_that_others_read(rule: Rule) -> None:
    text = """agraph (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
        { t = Relu(x)  y = Tanh(t)  z = Exp(t) }"""
    assert reasons(text, rule) == {"value 't' is read by node 'Exp_2' too"}


def test_a_way_out_of_the_region_and_back_in() -> None:
    text = """agraph (float[N, 4] x) => (float[N, 4] y) { t = Relu(x)  u = Exp(t)  y = Add(t, u) }"""
    rule = group("(a, b) => (y) { t = Relu(a)  y = Add(t, b) }")
    assert reasons(text, rule) == {"value 't' is read by node 'Exp_1' too"}


BRANCHES = """agraph (bool c, float[N, 4] x) => (float[N, 4] y) {
    t = Relu(x)
    y = If(c) <then_branch = a () => (float[N, 4] p) { p = Tanh(t) },
               else_branch = b () => (float[N, 4] q) { q = Exp(x) }>
}"""


@pytest.mark.parametrize("rule", BOTH, ids=["fuse", "fold"])
def test_nodes_of_different_graphs(rule: Rule) -> None:
    (reason,) = reasons(BRANCHES, rule)
    assert reason == "the nodes lie in different graphs"


def test_nodes_that_only_compute_shapes() -> None:
    text = """agraph (float[N, 4] x, float[M, 4] z) => (float[K, 2] y)
        <int64[1] two = {2}, int64[1] zero = {0}, int64[1] one = {1}>
        { s = Shape(x)  n = Slice(s, zero, one)  d = Mul(n, two)  e = Add(d, zero)
          k = Concat <axis = 0> (e, two)  y = Reshape(x, k) }"""
    rule = group("(a, b, c) => (y) { t = Mul(a, b)  y = Add(t, c) }")
    model = parse_model(text)
    result = fuse_graph(model, [rule])
    assert not any(decision.applied for decision in result.decisions)


def test_an_operator_without_a_kernel_for_the_dtype() -> None:
    text = "agraph (int32[N, 4] x) => (int32[N, 4] y) { t = Abs(x)  y = Neg(t) }"
    rule = fold("(a) => (y) { t = Abs(a)  y = Neg(t) }", "(a) => (y) { t = Abs(a)  y = Softplus(t) }")
    assert reasons(text, rule) == {"no kernel for Softplus on int32"}


RELU = "agraph (float[N, 4] x, float[N, 1] w) => (float[N, 4] y) { t = Abs(x)  s = Sub(t, w)  y = Relu(s) }"


@pytest.mark.parametrize(
    ("replacement", "reason"),
    [
        ("(a) => (y) { y = Cast <to = 10> (a) }", "the replacement is float16, not float32"),
        ("(b) => (y) { y = Relu(b) }", "the replacement has shape (N, 1), not (N, 4)"),
        ("(a) => (y) { y = Transpose(a) }", "the replacement has shape (4, N), not (N, 4)"),
        ("(a) => (y) { y = NoSuchThing(a) }", "no kernel for NoSuchThing"),
        ("(a, b) => (y) { y = MatMul(b, a) }", "the replacement is right only where N == 1"),
        (
            "(a) => (y) { y = Softmax(a) <axis = dim(a, 0)> }",
            "attribute 'axis' would be N, which depends on free dims",
        ),
    ],
)
def test_a_replacement_that_is_another_value(replacement: str, reason: str) -> None:
    rule = fold("(a, b) => (y) { t = Sub(a, b)  y = Relu(t) }", replacement)
    assert reasons(RELU, rule) == {reason}


@pytest.mark.parametrize(
    "replacement",
    [
        "(a) => (y) { y = Relu(a) <axis = 3> }",
        "(a) => (y) { y = Softmax(a) <axis = 7> }",
        "(a, b) => (y) { y = Concat(a, b) }",
        "(a) => (y) { y = MatMul(a, a) <axis = number(a)> }",
    ],
)
def test_a_replacement_that_is_no_valid_graph(replacement: str) -> None:
    rule = fold("(a, b) => (y) { t = Sub(a, b)  y = Relu(t) }", replacement)
    (reason,) = reasons(RELU, rule)
    assert reason.startswith("the replacement is not valid: ")


def test_a_replacement_that_costs_more_is_left_alone() -> None:
    rule = fold("(a) => (y) { y = Relu(a) }", "(a) => (y) { n = Neg(a)  m = Min(n, 0)  y = Neg(m) }")
    (reason,) = reasons(RELU, rule)
    assert reason == "it would cost 4112 ns more than it saves"


def test_constants_that_others_read_stay_as_they_are() -> None:
    text = """agraph (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) <float half = {0.5}, float two = {2}>
        { t = Mul(x, half)  u = Mul(t, two)  y = Relu(u)  z = Add(x, half) }"""
    rule = fold("(a) => (y) { t = Mul(a, 1)  y = Relu(t) }", "(a) => (y) { t = Add(a, 0)  y = Relu(t) }")
    result = run(text, rule)
    assert [d.applied for d in result.decisions] == [True]
    half = result.model.graph.initializers["half"]
    assert half.const_value is not None and half.const_value.numpy() == np.float32(0.5)
    assert "two" not in result.model.graph.initializers


UNDOES = [
    ([("Exp", "Tanh"), ("Tanh", "Exp")], "rules 'rule-0' and 'rule-1' undo each other at value 'y'"),
    (
        [("Exp", "Tanh"), ("Tanh", "Erf"), ("Erf", "Exp")],
        "rules 'rule-0' and 'rule-1' and 'rule-2' undo each other at value 'y'",
    ),
    ([("Exp", "Exp")], "rule 'rule-0' finds what it leaves at value 'y', and would rewrite it for ever"),
]


@pytest.mark.parametrize(("pairs", "message"), UNDOES, ids=["two", "three", "itself"])
def test_rules_that_undo_each_other(pairs: list[tuple[str, str]], message: str) -> None:
    rules = [
        fold(f"(a) => (y) {{ y = {old}(a) }}", f"(a) => (y) {{ y = {new}(a) }}", f"rule-{number}")
        for number, (old, new) in enumerate(pairs)
    ]
    model = parse_model("agraph (float[N, 4] x) => (float[N, 4] y) { y = Exp(x) }")
    with pytest.raises(InvalidValue) as caught:
        fuse_graph(model, rules)
    assert caught.value.message == message


def test_rules_that_work_along_a_long_chain_come_to_an_end() -> None:
    names = ["x", *(f"t{i}" for i in range(60)), "y"]
    body = "  ".join(f"{new} = Relu({old})" for old, new in itertools.pairwise(names))
    text = f"agraph (float[N, 4] x) => (float[N, 4] y) {{ {body} }}"
    result = run(text, fold("(a) => (y) { t = Relu(a)  y = Relu(t) }", "(a) => (y) { y = Relu(a) }"))
    assert [node.op_type for node in result.model.graph] == ["Relu"]


def test_what_only_a_rewritten_node_read_does_not_stop_others() -> None:
    text = """agraph (float[N, 4] x, float[4, 4] w) => (float[N, 4] y)
        { m = MatMul(x, w)  t = Tanh(m)  z = Mul(t, t)  d = Div(z, z)  s = Sigmoid(m)  y = Add(s, d) }"""
    dead = fold("(a, s) => (y) { d = Div(a, a)  y = Add(s, d) }", "(s) => (y) { y = Add(s, 1) }", "dead")
    result = run(text, dead, rule_from("stage: fuse\npattern: MatMul -> Any(map)*\naction: fuse\n", "ends"))
    assert [d.rule for d in result.decisions if d.applied] == ["dead", "ends"]
    assert [node.op_type.split("_")[0] for node in result.model.graph] == ["MatMulSigmoidAdd"]


def test_a_branchs_result_that_is_an_outer_value() -> None:
    text = """agraph (bool c, float[N, 4] x) => (float[N, 4] y) {
        t = Relu(x)  u = Tanh(t)
        y = If(c) <then_branch = a () => (float[N, 4] p) { p = Exp(u) },
                   else_branch = b () => (float[N, 4] q) { q = Identity(t) }>
    }"""
    assert reasons(text, BOTH[0]) == {"value 't' is read by node 'Identity_3' too"}


def test_float16_is_grouped_as_float32_is() -> None:
    text = "agraph (float16[N, 4] x) => (float16[N, 4] y) { t = Relu(x)  y = Tanh(t) }"
    result = run(text, BOTH[0])
    assert [decision.applied for decision in result.decisions] == [True]
    assert isinstance(result.model, ir.Model)
