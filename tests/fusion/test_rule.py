from pathlib import Path

import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.errors import CuvilError, InvalidValue, NameClash
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import load_rule, load_rules
from tests.fusion.rule_files import HEAD, rule_from, shipped_rules

GOOD = HEAD + "stage: fuse\npattern: Conv -> Relu\naction: fuse\n"


def messages(path: Path) -> list[str]:
    with pytest.raises(CuvilError) as caught:
        load_rule(path)
    return [str(d).split("\n")[0] for d in caught.value.diagnostics()]


def test_shipped_rules_load_by_stage_and_name() -> None:
    rules = shipped_rules()
    assert [(r.stage, r.name) for r in rules] == sorted((r.stage, r.name) for r in rules)
    assert all(rule.description for rule in rules)


def test_one_text_may_stand_for_a_list() -> None:
    rule = rule_from(
        "stage: fuse\npattern: [Conv -> Relu, Conv -> Clip]\nwhere: is_float(anchor)\naction: fuse\n"
    )
    assert len(rule.patterns) == 2 and len(rule.where) == 1
    assert rule.trust == 1.0


def test_all_mistakes_are_told_at_once_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "name: bad\ndescription: x\ngranularity: operator\nstage: fuse\n"
        "pattern: Conv -> Any(mapp)\n"
        "where:\n"
        "  - rank(anchor) == 'a'\n"
        '  - "is_flout(anchor)"\n'
        "  - is_float(weight)\n"
        "action: fuse\n"
        "trust: rank(nothing)\n"
    )
    assert messages(file) == [
        "bad.yaml:5:22: error[invalid-value]: unknown kind of operator 'mapp'",
        "bad.yaml:7:18: error[invalid-value]: can't compare a number with a text by '=='",
        "bad.yaml:8:6: error[invalid-value]: unknown function 'is_flout'",
        "bad.yaml:9:14: error[invalid-value]: the pattern has no value 'weight'",
        "bad.yaml:11:13: error[invalid-value]: the pattern has no value 'nothing'",
    ]


def test_places_within_block_texts(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "name: bad\ndescription: x\ngranularity: layer\nstage: fold\n"
        "pattern: |\n"
        "  (x) => (y) {\n"
        "    t = Relu(x)\n"
        "    y = Exp(u)\n"
        "  }\n"
        "action:\n"
        "  replace_with: |\n"
        "    (x) => (y) {\n"
        "      y = Exp(x) <axis = rank(z)>\n"
        "    }\n"
    )
    assert messages(file)[0] == "bad.yaml:8:5: error[invalid-value]: 'u' is neither an input nor computed"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("stage: fuse\n", "stage: fuze\n", "4:8: error[invalid-value]: 'stage': should be 'fold' or 'fuse'"),
        ("action: fuse\n", "", "1:1: error[missing-key]: key 'action' is missing"),
        ("action: fuse\n", "action: fuse\nwere: x\n", "7:1: error[unknown-key]: unknown key 'were'"),
        ("name: test", "name: other", "1:7: error[invalid-value]: 'name' must be 'bad', as the file is "
         "called"),
        ("stage: fuse", "stage: fold", "4:8: error[invalid-value]: rules that replace run in stage 'fold', "
         "rules that fuse in stage 'fuse'"),
        ("For a test.", "[a]", "2:14: error[wrong-type]: 'description': should be a valid string"),
    ],
)  # fmt: skip
def test_mistakes_in_keys(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "bad.yaml"
    text = GOOD.replace(old, new)
    file.write_text(text.replace("name: test", "name: bad"))
    assert messages(file)[0] == f"bad.yaml:{message}"


def test_a_replacement_must_end_where_the_pattern_ends() -> None:
    with pytest.raises(InvalidValue, match="the output is 'z', the pattern's is 'y'"):
        rule_from(
            "stage: fold\npattern: '(x) => (y) { y = Relu(x) }'\n"
            "action: {replace_with: '(x) => (z) { z = Abs(x) }'}\n"
        )


def test_two_files_of_one_rule_clash(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test.yaml").write_text(GOOD)
    with pytest.raises(NameClash, match=r"is defined in a/test\.yaml too"):
        load_rules(sorted(tmp_path.glob("*/test.yaml")))


CONV_NORM_RELU = """agraph (float[1, 2, 4, 4] x, float[2, 2, 1, 1] w, float[2] c, float[2] s, float[2] b,
    float[2] m, float[2] v) => (float[1, 2, 4, 4] y)
    { d = Conv(x, w%s)  n = BatchNormalization(d, s, b, m, v)  y = Relu(n) }"""


@pytest.mark.parametrize(("bias", "applied"), [("", True), (", c", False)])
def test_a_convolution_without_a_bias_is_simple_to_say(bias: str, applied: bool) -> None:
    rule = rule_from(
        "stage: fuse\npattern: Conv -> BatchNormalization -> Relu\n"
        "where: not has_input(anchor, 2)\naction: fuse\n"
    )
    (decision,) = fuse_graph(parse_model(CONV_NORM_RELU % bias), [rule]).decisions
    assert decision.applied == applied
    assert decision.refused_by == ("" if applied else "where: not has_input(anchor, 2)")


def test_constraints_may_name_the_links_of_a_chain() -> None:
    rule = rule_from(
        "stage: fuse\npattern: Conv -> norm = BatchNormalization -> Relu\n"
        "where: [inputs(norm) == 5, op(result) == 'Relu', inputs(anchor) == 2]\naction: fuse\n"
    )
    (decision,) = fuse_graph(parse_model(CONV_NORM_RELU % ""), [rule]).decisions
    assert decision.applied


@pytest.mark.parametrize(
    "replacement",
    ["(x) => (y) { y = Exp(_) }", "(x) => (y) { y = Concat(x, ...) }", "(x) => (y) { y = Clip(x, x?) }"],
)
def test_a_replacement_names_each_operand(replacement: str) -> None:
    with pytest.raises(CuvilError, match=r"names each of its operands|never used"):
        rule_from(
            f"stage: fold\npattern: '(x) => (y) {{ y = Relu(x) }}'\n"
            f"action: {{replace_with: '{replacement}'}}\n"
        )


def test_a_replacement_may_hold_nodes_within_nodes() -> None:
    rule = rule_from(
        "stage: fold\npattern: '(x) => (y) { t = Relu(x)  y = Tanh(t) }'\n"
        "action: {replace_with: '(x) => (y) { y = Tanh(Relu(x)) }'}\n"
    )
    assert rule.replacement is not None and list(rule.replacement.nodes) == ["y.0", "y"]
