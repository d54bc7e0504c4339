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


RUN = "agraph (float[2, 6] x, float[2, 6] w) => (float[2, 6] y) <int64[2] a = {3, 4}, int64[2] b = {2, 6}>"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("p = Reshape(x, a)  q = Cast <to = 1> (p)  t = Reshape(q, b)  y = Tanh(t)", ["x", "p", "q", "t"]),
        ("t = Reshape(x, b)  y = Tanh(t)", ["x", "t"]),
        ("y = Tanh(x)", ["x"]),
    ],
)
def test_any_number_of_nodes_in_a_row(body: str, found: list[str]) -> None:
    """The longest run comes first."""
    pattern = "(v) => (y) { t = (Reshape|Cast)*(v)  y = Tanh(t) }"
    assert [names(m)["v"] for m in matches(f"{RUN} {{ {body} }}", pattern, "y")] == found
    at_least_one = matches(f"{RUN} {{ {body} }}", pattern.replace("*", "+"), "y")
    assert [names(m)["v"] for m in at_least_one] == found[:-1]


def test_a_row_covers_its_nodes() -> None:
    text = f"{RUN} {{ p = Reshape(x, a)  t = Reshape(p, b)  y = Tanh(t) }}"
    first = matches(text, "(v) => (y) { y = Tanh(Reshape*(v)) }", "y")[0]
    assert [node.outputs[0].name for node in first.nodes] == ["y", "t", "p"]


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("(v) => (y) { y = Concat(v, v, ...) <axis = 1> }", 0),
        ("(v) => (y) { y = Concat(v, ...) <axis = 1> }", 0),
        ("(v) => (y) { y = Concat(v, _, ...) <axis = 1> }", 1),
        ("(v, u) => (y) { y = Concat(v, u, v) <axis = 1> }", 1),
        ("(v, u) => (y) { y = Concat(v, u) <axis = 1> }", 0),
        ("(v) => (y) { y = Concat(v, _, _, _, ...) <axis = 1> }", 0),
    ],
)
def test_more_operands_of_the_same(pattern: str, count: int) -> None:
    text = "agraph (float[2] x, float[2] w) => (float[6] y) { y = Concat <axis = 0> (x, w, x) }"
    assert len(matches(text, pattern.replace("axis = 1", "axis = 0"), "y")) == count
    same = "agraph (float[2] x, float[2] w) => (float[6] y) { y = Concat <axis = 0> (x, x, x) }"
    pattern = "(v) => (y) { y = Concat(v, v, ...) <axis = 0> }"
    assert [names(m)["v"] for m in matches(same, pattern, "y")] == ["x"]


CONV = "agraph (float[1, 2, 4, 4] x, float[2, 2, 1, 1] w, float[2] c) => (float[1, 2, 4, 4] y)"


def test_operands_may_be_missing() -> None:
    pattern = "(v, w, b) => (y) { y = Conv(v, w, b?) }"
    (without,) = matches(f"{CONV} {{ y = Conv(x, w) }}", pattern, "y")
    assert set(without.values) == {"v", "w", "y"}
    (with_bias,) = matches(f"{CONV} {{ y = Conv(x, w, c) }}", pattern, "y")
    assert names(with_bias)["b"] == "c"
    assert not matches(f"{CONV} {{ y = Conv(x, w, c) }}", "(v, w) => (y) { y = Conv(v, w) }", "y")


def test_an_operand_that_is_left_out_in_the_middle_is_no_other() -> None:
    text = f"{HALVES} {{ y = Clip(x, , two) }}"
    assert not matches(text, "(v) => (y) { y = Clip(v, 2) }", "y")
    assert matches(text, "(v, a) => (y) { y = Clip(v, a?, _?) }", "y")
