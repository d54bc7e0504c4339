"""Rules that want the same nodes: the best gain wins, whatever the order of files, nodes and hashes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace

import onnx_ir as ir
import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.verify import verify
from cuvil_build.fusion.decisions import decisions_text
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.fusion.rule import Rule
from cuvil_build.ops.infer import infer_model
from tests.fusion.benchmark import graph
from tests.fusion.rule_files import network, rule_from, shipped_rules


def chain(pattern: str, name: str, more: str = "", granularity: str = "operator") -> Rule:
    text = f"stage: fuse\npattern: {pattern}\naction: fuse\n{more}"
    return replace(rule_from(text, name), granularity=granularity)


def run(text: str, *rules: Rule) -> FusionResult:
    model = parse_model(text)
    infer_model(model)
    result = fuse_graph(model, rules)
    verify(model)
    return result


def applied(result: FusionResult) -> list[tuple[str, tuple[str, ...]]]:
    return [(d.rule, d.nodes) for d in result.decisions if d.applied]


LONG = "agraph (float[N, 4] x) => (float[N, 4] y) { a = Tanh(x)  b = Exp(a)  c = Abs(b)  y = Neg(c) }"


def test_the_larger_gain_wins_and_the_loser_says_so() -> None:
    result = run(LONG, chain("Tanh -> Exp", "first"), chain("Exp -> Abs -> Neg", "second"))
    assert applied(result) == [("second", ("Exp_1", "Abs_2", "Neg_3"))]
    (won,) = [d for d in result.decisions if d.applied]
    assert won.contested_by == ("first",)
    (lost,) = [d for d in result.decisions if not d.applied]
    assert lost.rule == "first" and lost.nodes == ("Tanh_0", "Exp_1")
    assert lost.refused_by.startswith("rule 'second' gains more with node 'Exp_1': ")


def test_who_lost_nodes_makes_do_with_what_is_left() -> None:
    text = """agraph (float[N, 4] x, float[4, 400] w) => (float[N, 400] y)
        { a = Tanh(x)  b = Exp(a)  c = Abs(b)  m = MatMul(c, w)  y = Neg(m) }"""
    result = run(text, chain("Tanh -> Any(map)*", "front"), chain("Abs -> MatMul -> Neg", "wide"))
    assert applied(result) == [("front", ("Tanh_0", "Exp_1")), ("wide", ("Abs_2", "MatMul_3", "Neg_4"))]


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_equal_gains_go_to_the_coarser_rule_then_by_name(names: tuple[str, str]) -> None:
    one, two = names
    coarser = run(LONG, chain("Tanh -> Exp", one, granularity="layer"), chain("Tanh -> Exp", two))
    assert [rule for rule, _ in applied(coarser)] == [one]
    equal = run(LONG, chain("Tanh -> Exp", one), chain("Tanh -> Exp", two))
    assert [rule for rule, _ in applied(equal)] == ["first"]


def test_rewrites_compete_by_gain_too() -> None:
    small = rule_from(
        "stage: fold\npattern: '(x) => (y) { t = Abs(x)  y = Neg(t) }'\n"
        "action: {replace_with: '(x) => (y) { y = Softplus(x) }'}\n", "a-small")  # fmt: skip
    large = rule_from(
        "stage: fold\npattern: '(x) => (y) { s = Exp(x)  t = Abs(s)  y = Neg(t) }'\n"
        "action: {replace_with: '(x) => (y) { y = Selu(x) }'}\n", "b-large")  # fmt: skip
    result = run(LONG, small, large)
    assert applied(result) == [("b-large", ("Exp_1", "Abs_2", "Neg_3"))]
    assert [node.op_type for node in result.model.graph] == ["Tanh", "Selu"]


def shuffled(model: ir.Model, seed: int) -> ir.Model:
    """The same nodes in another order, operands first."""
    chance = random.Random(seed)
    nodes = list(model.graph)
    waiting = {
        node: len({v.producer() for v in node.inputs if v is not None and v.producer()}) for node in nodes
    }
    ready = [node for node in nodes if not waiting[node]]
    order: list[ir.Node] = []
    while ready:
        node = ready.pop(chance.randrange(len(ready)))
        order.append(node)
        for user in dict.fromkeys(u for v in node.outputs for u, _ in v.uses()):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    assert len(order) == len(nodes)
    model.graph.remove(nodes)
    model.graph.extend(order)
    return model


def regions(model: ir.Model) -> list[tuple[str, str]]:
    """Every node with its result's name, in no order of the text."""
    return sorted((node.op_type, node.outputs[0].name or "") for node in model.graph.all_nodes())


def test_the_order_of_rules_and_nodes_does_not_matter() -> None:
    rules = [*shipped_rules(), chain("Any(map) -> Any(map)+", "rival"), chain("MatMul -> Add", "pair")]
    model = graph(120)
    wanted: tuple[list[tuple[str, str]], str] | None = None
    for seed in range(5):
        mixed = shuffled(model.clone(), seed) if seed else model.clone()
        order = random.Random(seed).sample(rules, len(rules))
        result = fuse_graph(mixed, order)
        verify(mixed)
        found = regions(mixed), decisions_text(result.decisions)
        wanted = wanted or found
        assert found == wanted


SCRIPT = """
from tests.fusion.benchmark import graph, rules
from cuvil_build.fusion.decisions import decisions_text
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.cuir.text import print_graph
model = graph(60)
result = fuse_graph(model, rules(40))
print(print_graph(model), decisions_text(result.decisions))
"""


def test_hash_seeds_do_not_matter() -> None:
    said = set()
    for seed in ("1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        said.add(done.stdout)
    assert len(said) == 1


def test_two_anchors_may_want_one_node() -> None:
    model = network(
        """agraph (float[N, 4] x, float[4, 4] v, float[4, 4] w) => (float[N, 4] y)
        { a = MatMul(x, v)  b = MatMul(x, w)  c = Add(a, b)  y = Relu(c) }"""
    )
    result = fuse_graph(model, shipped_rules(["epilogue"]))
    assert applied(result) == [("epilogue", ("MatMul_0", "Add_2", "Relu_3"))]
