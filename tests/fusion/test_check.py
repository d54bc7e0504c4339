from cuvil_build.cuir.text import parse_model
from cuvil_build.fusion.check import compare_graphs, wrong_rule
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.ops.infer import infer_model
from cuvil_build.samples import random_samples
from tests.conftest import input_spec
from tests.fusion.rule_files import rule_from, shipped_rules

TEXT = "agraph (float[N, 4] x) => (float[N, 4] y) { a = Sigmoid(x)  y = Mul(x, a) }"
WRONG = """
stage: fold
pattern: "(x) => (y) { y = Sigmoid(x) }"
action: {replace_with: "(x) => (y) { y = HardSigmoid(x) }"}
"""


def test_a_wrong_rule_is_caught_and_named() -> None:
    rules = [rule_from(WRONG, "wrong"), *shipped_rules()]
    before = parse_model(TEXT)
    infer_model(before)
    after = before.clone()
    fuse_graph(after, rules)
    cases = random_samples([input_spec(v) for v in before.graph.inputs], {}, "check")
    found = compare_graphs(before, after, cases)
    assert found is not None and not found.passed
    assert "rule 'wrong' changes what the model computes" in wrong_rule(before, rules, cases).message


def test_right_rules_pass() -> None:
    before = parse_model(TEXT)
    infer_model(before)
    after = before.clone()
    fuse_graph(after, shipped_rules())
    cases = random_samples([input_spec(v) for v in before.graph.inputs], {}, "check")
    found = compare_graphs(before, after, cases)
    assert found is not None and found.passed
