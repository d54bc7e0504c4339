"""What users force and pin, and what happens where that is not legal."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from cuvil_build import yaml_source
from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.verify import verify
from cuvil_build.errors import CuvilError, InvalidValue
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.fusion.overrides import Overrides, read_overrides
from cuvil_build.fusion.rule import Rule
from cuvil_build.ops.infer import infer_model
from tests.fusion.rule_files import rule_from

TEXT = "agraph (float[N, 4] x) => (float[N, 4] y) { a = Tanh(x)  b = Exp(a)  c = Abs(b)  y = Neg(c) }"


def chain(pattern: str, name: str, more: str = "") -> Rule:
    return rule_from(f"stage: fuse\npattern: {pattern}\naction: fuse\n{more}", name)


SMALL = chain("Tanh -> Exp", "small")
LARGE = chain("Any(map)+ -> Neg", "large")
ANY = chain("Any(map) -> Any(map)*", "any")
RULES = [SMALL, LARGE, ANY]


def overrides(text: str) -> Overrides:
    return read_overrides(yaml_source.parse(text, "o.yaml"), [rule.name for rule in RULES])


def run(text: str, wanted: str, rules: list[Rule] = RULES) -> FusionResult:
    model = parse_model(text)
    infer_model(model)
    result = fuse_graph(model, rules, overrides(wanted))
    verify(model)
    return result


def applied(result: FusionResult) -> dict[tuple[str, ...], tuple[str, str]]:
    return {d.nodes: (d.rule, d.override) for d in result.decisions if d.applied}


def test_a_forced_rule_wins_over_a_larger_gain() -> None:
    assert next(iter(applied(run(TEXT, "")).values()))[0] in ("large", "any")
    result = run(TEXT, "force:\n  - {rule: small, nodes: Exp_1}\n")
    found = applied(result)
    assert found[("Tanh_0", "Exp_1")] == ("small", "force o.yaml:2")
    assert {rule for rule, _ in found.values()} == {"small", "any"} or ("Abs_2", "Neg_3") in found
    assert [str(used) for used in result.used_overrides] == ["force o.yaml:2"]


def test_a_forced_rule_is_not_asked_for_its_gain() -> None:
    costly = rule_from(
        "stage: fold\npattern: '(x) => (y) { y = Neg(x) }'\n"
        "action: {replace_with: '(x) => (y) { t = Abs(x)  u = Mul(x, -1)  v = Add(t, u)  y = Sub(v, t) }'}\n",
        "small",
    )
    text = "agraph (float[N, 4] x) => (float[N, 4] y) { y = Neg(x) }"
    (decision,) = run(text, "", [costly]).decisions
    assert not decision.applied and "more than it saves" in decision.refused_by
    forced = run(text, "force:\n  - {rule: small, nodes: Neg_0}\n", [costly])
    assert [(d.applied, d.gain < 0) for d in forced.decisions] == [(True, True)]


def test_pinned_nodes_are_exactly_one_region() -> None:
    result = run(TEXT, "pin:\n  - {rule: any, nodes: [Exp_1, Abs_2]}\n")
    found = applied(result)
    assert found[("Exp_1", "Abs_2")] == ("any", "pin o.yaml:2")
    assert len(found) == 1
    assert [str(used) for used in result.used_overrides] == ["pin o.yaml:2"]


def test_a_pin_comes_before_rewrites() -> None:
    fold = rule_from(
        "stage: fold\npattern: '(x) => (y) { t = Abs(x)  y = Neg(t) }'\n"
        "action: {replace_with: '(x) => (y) { y = Softplus(x) }'}\n", "small")  # fmt: skip
    assert "Softplus" in [n.op_type for n in run(TEXT, "", [fold]).model.graph]
    result = run(TEXT, "pin:\n  - {rule: any, nodes: [Exp_1, Abs_2]}\n", [fold, ANY])
    assert applied(result)[("Exp_1", "Abs_2")][0] == "any"
    assert "Softplus" not in [node.op_type for node in result.model.graph]


def test_a_rewrite_may_be_pinned() -> None:
    fold = rule_from(
        "stage: fold\npattern: '(x) => (y) { y = Exp|Neg(x) }'\n"
        "action: {replace_with: '(x) => (y) { y = Softplus(x) }'}\n"
        "where: op(y) == 'Exp'\n", "small")  # fmt: skip
    result = run(TEXT, "pin:\n  - {rule: small, nodes: [Exp_1]}\n", [fold])
    assert applied(result)[("Exp_1",)] == ("small", "pin o.yaml:2")
    with pytest.raises(InvalidValue, match="where: op"):
        run(TEXT, "pin:\n  - {rule: small, nodes: [Neg_3]}\n", [fold])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            "force:\n  - {rule: large, nodes: Neg_3}\n",
            "o.yaml:2:12: error[invalid-value]: rule 'large' can't be forced for a node 'Neg_3': "
            "value 'c' is an output of its graph",
        ),
        (
            "pin:\n  - {rule: any, nodes: [Abs_2, Neg_3]}\n",
            "o.yaml:2:12: error[invalid-value]: rule 'any' can't be pinned for the nodes 'Abs_2', 'Neg_3': "
            "value 'c' is an output of its graph",
        ),
        (
            "pin:\n  - {rule: any, nodes: [Tanh_0, Abs_2]}\n",
            "o.yaml:2:12: error[invalid-value]: rule 'any' can't be pinned for the nodes 'Tanh_0', 'Abs_2': "
            "the rule does not match exactly these nodes",
        ),
    ],
)
def test_what_is_not_legal_is_an_error_with_its_place_and_reason(wanted: str, message: str) -> None:
    text = TEXT.replace("(float[N, 4] y)", "(float[N, 4] y, float[N, 4] c)")
    with pytest.raises(CuvilError) as caught:
        run(text, wanted)
    assert str(caught.value).split("\n")[0] == message


def test_pins_that_share_a_node_are_an_error() -> None:
    wanted = "pin:\n  - {rule: any, nodes: [Exp_1, Abs_2]}\n  - {rule: any, nodes: [Abs_2, Neg_3]}\n"
    with pytest.raises(InvalidValue, match="is pinned to another region"):
        run(TEXT, wanted)


def test_what_the_model_does_not_have_decides_nothing() -> None:
    wanted = "pin:\n  - {rule: any, nodes: [gone, Abs_2]}\nforce:\n  - {rule: any, nodes: gone}\n"
    result = run(TEXT, wanted)
    assert result.used_overrides == ()
    assert isinstance(result.model, ir.Model)


def test_a_denied_rule_is_told_with_its_override() -> None:
    result = run(TEXT, "deny:\n  - {rule: large, nodes: 'Abs*'}\n")
    assert {d.override for d in result.decisions if not d.applied and d.rule == "large"} == {"deny o.yaml:2"}
    assert "large" not in {rule for rule, _ in applied(result).values()}


INNER = rule_from(
    "stage: fold\npattern: '(x) => (y) { t = Abs(x)  y = Neg(t) }'\n"
    "action: {replace_with: '(x) => (y) { y = Softplus(x) }'}\n", "small")  # fmt: skip
OUTER = """stage: fold
pattern: '(x) => (y) { s = Exp(x)  t = Abs(s)  y = Neg(t) }'
action: {replace_with: '(x) => (y) { y = Selu(x) }'}
"""


def test_a_denied_rewrite_is_told_where_another_takes_its_nodes() -> None:
    rules = [INNER, rule_from(OUTER, "large")]
    assert [rule for rule, _ in applied(run(TEXT, "", rules)).values()] == ["large"]
    result = run(TEXT, "deny:\n  - {rule: large, nodes: 'Exp*'}\n", rules)
    assert applied(result) == {("Abs_2", "Neg_3"): ("small", "")}
    (denied,) = (d for d in result.decisions if d.override)
    assert (denied.rule, denied.nodes) == ("large", ("Exp_1", "Abs_2", "Neg_3"))
    assert (denied.applied, denied.override) == (False, "deny o.yaml:2") and "denied at" in denied.refused_by
    assert [entry.rule for entry in result.used_overrides] == ["large"]


def test_a_denied_rewrite_is_told_where_an_earlier_one_made_its_place() -> None:
    """It matches what `small` leaves, and `any` takes that."""
    first = rule_from(
        "stage: fold\npattern: '(x) => (y) { t = Tanh(x)  y = Exp(t) }'\n"
        "action: {replace_with: '(x) => (y) { y = Selu(x) }'}\n", "small")  # fmt: skip
    large = rule_from(
        "stage: fold\npattern: '(x) => (y) { s = Selu(x)  t = Abs(s)  y = Neg(t) }'\n"
        "action: {replace_with: '(x) => (y) { y = Elu(x) }'}\n", "large")  # fmt: skip
    other = rule_from(
        "stage: fold\npattern: '(x) => (y) { s = Selu(x)  y = Abs(s) }'\n"
        "action: {replace_with: '(x) => (y) { y = Softplus(x) }'}\n", "any")  # fmt: skip
    rules = [first, large, other]
    assert [n.op_type for n in run(TEXT, "", rules).model.graph] == ["Elu"]
    result = run(TEXT, "deny:\n  - {rule: large, nodes: '*'}\n", rules)
    assert [n.op_type for n in result.model.graph] == ["Softplus", "Neg"]
    denied = [(d.rule, d.nodes) for d in result.decisions if d.override == "deny o.yaml:2"]
    assert denied == [("large", ("Tanh_0", "Exp_1", "Abs_2", "Neg_3"))]


def test_a_rewrite_that_grew_into_denied_nodes_is_told() -> None:
    """`large` matches from the start; once `small` is done it would have nodes that are denied."""
    text = TEXT.replace("b = Exp(a)", "s = Sin(a)  b = Exp(s)")
    small = rule_from(
        "stage: fold\npattern: '(x) => (y) { s = Tanh(x)  t = Sin(s)  y = Exp(t) }'\n"
        "action: {replace_with: '(x) => (y) { y = Selu(x) }'}\n", "small")  # fmt: skip
    large = rule_from(
        "stage: fold\npattern: '(x) => (y) { s = Selu?(x)  t = Abs(s)  y = Neg(t) }'\n"
        "action: {replace_with: '(x) => (y) { y = Elu(x) }'}\n", "large")  # fmt: skip
    result = run(text, "deny:\n  - {rule: large, nodes: 'Exp*'}\n", [small, large])
    told = [(d.rule, d.nodes, d.applied, d.override) for d in result.decisions]
    assert sorted(told) == [
        ("large", ("Abs_3", "Neg_4"), True, ""),
        ("large", ("Tanh_0", "Sin_1", "Exp_2", "Abs_3", "Neg_4"), False, "deny o.yaml:2"),
        ("small", ("Tanh_0", "Sin_1", "Exp_2"), True, ""),
    ]


def test_a_denied_match_is_told_beside_another_of_the_same_rule() -> None:
    either = rule_from(
        "stage: fold\npattern: '(x) => (y) { s = Exp?(x)  t = Abs(s)  y = Neg(t) }'\n"
        "action: {replace_with: '(x) => (y) { y = Selu(x) }'}\n", "large")  # fmt: skip
    result = run(TEXT, "deny:\n  - {rule: large, nodes: 'Exp*'}\n", [either])
    told = {(d.nodes, d.applied, d.override) for d in result.decisions}
    assert told == {
        (("Exp_1", "Abs_2", "Neg_3"), False, "deny o.yaml:2"),
        (("Abs_2", "Neg_3"), True, ""),
    }


@pytest.mark.parametrize(
    "wanted",
    ["force:\n  - {rule: large, nodes: Exp_1}\n", "pin:\n  - {rule: large, nodes: [Exp_1, Abs_2, Neg_3]}\n"],
)
def test_a_rewrite_that_is_wanted_and_not_legal_is_an_error_where_another_takes_its_nodes(
    wanted: str,
) -> None:
    rules = [INNER, rule_from(f"{OUTER}where: op(y) == 'Abs'\n", "large")]
    with pytest.raises(InvalidValue, match=r"rule 'large' can't be .*: where: op"):
        run(TEXT, wanted, rules)
