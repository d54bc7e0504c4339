import pytest

from cuvil_build.fusion.facts import FUNCTIONS
from cuvil_build.fusion.match import Match, find_matches, obstacle
from cuvil_build.fusion.pattern import GraphPattern, parse_graph
from tests.fusion.rule_files import node_of, scope_of

HALVES = "agraph (float[4] x, float[4] w) => (float[4] y) <float half = {0.5}, float two = {2}>"


def matches(text: str, pattern: str, root: str, tolerance: float = 1e-5) -> list[Match]:
    scope = scope_of(text)
    graph: GraphPattern = parse_graph(pattern, FUNCTIONS)
    return list(find_matches(scope, graph, tolerance, node_of(scope, root)))


def names(match: Match) -> dict[str, str]:
    return {name: str(value.name) for name, value in sorted(match.values.items())}


@pytest.mark.parametrize("body", ["t = Relu(x)  y = Add(t, w)", "t = Relu(x)  y = Add(w, t)"])
def test_operands_of_commutative_operators_may_be_swapped(body: str) -> None:
    found = matches(f"{HALVES} {{ {body} }}", "(a, b) => (y) { t = Relu(a)  y = Add(t, b) }", "y")
    assert [names(m) for m in found] == [{"a": "x", "b": "w", "t": "t", "y": "y"}]


def test_operands_of_others_may_not() -> None:
    assert not matches(
        f"{HALVES} {{ t = Relu(x)  y = Sub(w, t) }}", "(a, b) => (y) { t = Relu(a)  y = Sub(t, b) }", "y"
    )


@pytest.mark.parametrize(
    "body",
    [
        "p = Mul(x, w)  y = Mul(p, half)",
        "p = Mul(half, w)  y = Mul(x, p)",
        "p = Div(x, two)  y = Mul(p, w)",
        "p = Mul(x, w)  y = Div(p, two)",
        "p = Mul(x, half)  q = Mul(p, two)  r = Mul(q, half)  y = Mul(w, r)",
    ],
)
def test_products_match_in_any_order(body: str) -> None:
    found = matches(f"{HALVES} {{ {body} }}", "(a, b) => (y) { y = Mul(a, b, 0.5) }", "y")
    assert {names(m)["a"] for m in found} == {"x", "w"}


def test_a_factor_that_is_read_elsewhere_is_not_taken_apart() -> None:
    text = "agraph (float[4] x, float[4] w) => (float[4] y, float[4] p) <float half = {0.5}>"
    assert not matches(
        f"{text} {{ p = Mul(x, half)  y = Mul(p, w) }}", "(a, b) => (y) { y = Mul(a, b, 0.5) }", "y"
    )


def test_numbers_match_within_the_tolerance() -> None:
    text = f"{HALVES} {{ y = Add(x, half) }}"
    assert matches(text, "(a) => (y) { y = Add(a, 0.500001) }", "y")
    assert not matches(text, "(a) => (y) { y = Add(a, 0.501) }", "y")
    assert matches(text, "(a) => (y) { y = Add(a, 0.501) }", "y", tolerance=0.01)


def test_one_name_is_one_value() -> None:
    pattern = "(a) => (y) { t = Tanh(a)  y = Add(a, t) }"
    assert matches(f"{HALVES} {{ t = Tanh(x)  y = Add(t, x) }}", pattern, "y")
    assert not matches(f"{HALVES} {{ t = Tanh(x)  y = Add(t, w) }}", pattern, "y")


def test_optional_nodes_may_be_missing() -> None:
    pattern = "(a) => (y) { c = Relu?(a)  y = Tanh(c) }"
    with_node = matches(f"{HALVES} {{ t = Relu(x)  y = Tanh(t) }}", pattern, "y")
    assert [names(m)["a"] for m in with_node] == ["x", "t"]
    assert [names(m)["a"] for m in matches(f"{HALVES} {{ y = Tanh(x) }}", pattern, "y")] == ["x"]


def test_attributes_count_with_their_defaults() -> None:
    text = f"{HALVES} {{ y = Softmax(x) }}"
    assert matches(text, "(a) => (y) { y = Softmax(a) <axis = -1> }", "y")
    assert not matches(text, "(a) => (y) { y = Softmax(a) <axis = 0> }", "y")


def test_an_inner_value_read_outside_is_an_obstacle() -> None:
    text = "agraph (float[4] x) => (float[4] y, float[4] z) { t = Relu(x)  y = Tanh(t)  z = Exp(t) }"
    scope = scope_of(text)
    root = node_of(scope, "y")
    graph = parse_graph("(a) => (y) { t = Relu(a)  y = Tanh(t) }", FUNCTIONS)
    (match,) = find_matches(scope, graph, 1e-5, root)
    assert obstacle(scope, match, root.outputs[0]) == "value 't' is read by node 'Exp_2' too"
