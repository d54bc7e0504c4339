import pytest

from cuvil_build.fusion.facts import FUNCTIONS
from cuvil_build.fusion.pattern import Chain, GraphPattern, parse_pattern
from cuvil_build.fusion.tokens import RuleSyntax


def test_a_chain_grows_both_ways_from_its_first_required_link() -> None:
    chain = parse_pattern("(Transpose|Reshape)* -> Conv|MatMul -> Any(map)* -> Relu?", FUNCTIONS)
    assert isinstance(chain, Chain)
    assert [str(e) for e in chain.before] == ["(Transpose|Reshape)*"]
    assert str(chain.anchor) == "Conv|MatMul"
    assert [str(e) for e in chain.after] == ["Any(map)*", "Relu?"]


def test_operators_of_other_domains_have_dots() -> None:
    chain = parse_pattern("com.microsoft.FusedMatMul -> Relu", FUNCTIONS)
    assert isinstance(chain, Chain)
    assert (chain.anchor.ops[0].domain, chain.anchor.ops[0].name) == ("com.microsoft", "FusedMatMul")


def test_a_graph_has_numbers_attributes_and_optional_nodes() -> None:
    graph = parse_pattern(
        "(x) => (y) { c = Cast?(x) <to = 1>  m = Mul(c, -0.5)  y = Softmax|LogSoftmax <axis = -1> (m) }",
        FUNCTIONS,
    )
    assert isinstance(graph, GraphPattern)
    assert graph.nodes["c"].is_optional and not graph.nodes["y"].is_optional
    assert graph.nodes["m"].operands == ("c", -0.5) and graph.nodes["m"].is_product
    assert graph.nodes["y"].attributes["axis"].compute({}, None) == -1
    assert [op.name for op in graph.nodes["y"].ops] == ["Softmax", "LogSoftmax"]


def test_links_of_a_chain_may_have_names() -> None:
    chain = parse_pattern("Conv -> norm = BatchNormalization -> Relu", FUNCTIONS)
    assert isinstance(chain, Chain)
    assert [str(e) for e in chain.elements()] == ["Conv", "norm = BatchNormalization", "Relu"]
    assert chain.names() == ("anchor", "result", "norm")


def test_an_operand_may_be_a_node() -> None:
    graph = parse_pattern("(x) => (y) { y = Mul(x, Sigmoid(Cast?(x) <to = 1>)) }", FUNCTIONS)
    assert isinstance(graph, GraphPattern)
    assert [(name, node.operands) for name, node in graph.nodes.items()] == [
        ("y.1.0", ("x",)),
        ("y.1", ("y.1.0",)),
        ("y", ("x", "y.1")),
    ]
    assert graph.names() == ("x", "y")


def test_nodes_in_a_row_operands_that_may_be_missing_and_more_of_the_same() -> None:
    graph = parse_pattern(
        "(x, w, b) => (y) { t = (Reshape|Cast)*(x)  c = Conv(t, w, b?)  y = Concat(c, _, ...) }", FUNCTIONS
    )
    assert isinstance(graph, GraphPattern)
    assert graph.nodes["t"].is_run and graph.nodes["t"].is_optional
    assert (graph.nodes["c"].operands, graph.nodes["c"].required) == (("t", "w", "b"), 2)
    assert graph.nodes["y"].operands == ("c", "_") and graph.nodes["y"].repeats_last


@pytest.mark.parametrize(
    ("text", "offset", "message"),
    [
        ("Conv -> ", 8, "expected an operator, not the end"),
        ("Conv -> Any(mapp)", 12, "unknown kind of operator 'mapp'"),
        ("Conv* -> Relu?", 0, "a chain needs one element that is neither optional nor repeated"),
        ("Conv Relu", 5, "unexpected 'Relu'"),
        ("(x) => (y, z) { y = Relu(x)  z = Relu(x) }", 14, "a pattern has one output"),
        ("(x) => (y) { y = Relu(z) }", 13, "'z' is neither an input nor computed"),
        ("(x) => (y) { z = Relu(x) }", 0, "the output 'y' is not computed"),
        ("(x) => (y) { y = Relu(x)  y = Exp(x) }", 26, "'y' is defined twice"),
        ("(x) => (y) { y = Relu(x)  z = Exp(x) }", 26, "'z' is never used"),
        ("(x, w) => (y) { y = Relu(x) }", 0, "'w' is never used"),
        ("(x) => (y) { y = Relu(x", 23, "expected ',', not the end"),
        ("(x) => (y) { y = Cast?(1) }", 13, "an optional node needs an operand that stands for it"),
        (
            "(x, w) => (y) { y = (Add|Mul)*(x, w) }",
            16,
            "nodes in a row are written with their first operand alone",
        ),
        ("(x, w) => (y) { y = Conv(x?, w) }", 30, "operands that may be missing come last"),
        ("(x) => (y) { y = Concat(...) }", 24, "expected a value, not '...'"),
        ("(x) => (y) { y = Concat(x, ..., x) }", 30, "expected ')', not ','"),
        ("(x) => (y) { y = Mul(x, Sigmoid(z)) }", 24, "'z' is neither an input nor computed"),
        ("a = Conv -> a = Relu", 0, "'a' is defined twice"),
        ("anchor = Conv -> Relu", 0, "'anchor' is defined twice"),
    ],
)
def test_mistakes_have_their_place(text: str, offset: int, message: str) -> None:
    with pytest.raises(RuleSyntax) as caught:
        parse_pattern(text, FUNCTIONS)
    assert (caught.value.offset, caught.value.message) == (offset, message)
