import onnx_ir as ir
import pytest

from cuvil_build.cuir.guards import Guard, add_guards, read_guards
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.cuir.locations import source_nodes
from cuvil_build.cuir.opset import FUSED_DOMAIN
from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.verify import verify
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.ops.infer import infer_model
from tests.fusion.rule_files import shipped_rules


def fused(text: str) -> ir.Model:
    model = parse_model(text)
    fuse_graph(model, shipped_rules())
    verify(model)
    return model


def calls(model: ir.Model) -> list[str]:
    return [n.op_type for n in model.graph.all_nodes() if n.domain == FUSED_DOMAIN]


LAYERS = """agraph (float[N, 8] x, float[8, 8] v, float[8, 8] w) => (float[N, 8] y)
    <float a = {%s}, float b = {%s}, float c = {%s}, float d = {%s}>
    { m = MatMul(x, v)  s = Clip(m, a, b)  n = MatMul(s, w)  y = Clip(n, c, d) }"""


def test_layers_share_a_function_whatever_their_float_constants_are() -> None:
    first, second = calls(fused(LAYERS % (0, 6, 0, 6)))
    assert first == second
    first, second = calls(fused(LAYERS % (0, 6, -1, 1)))
    assert first == second


def test_other_shapes_are_another_function() -> None:
    text = LAYERS.replace("float[8, 8] w", "float[8, 4] w").replace("(float[N, 8] y)", "(float[N, 4] y)")
    first, second = calls(fused(text % (0, 6, 0, 6)))
    assert first != second


def test_other_contents_of_shape_operands_are_another_function() -> None:
    text = """agraph (float[2, 4, 8] x, float[2, 4, 8] z) => (float[2, 4] y, float[2, 8] u)
        <int64[1] last = {2}, int64[1] mid = {1}>
        { e = Abs(x)  y = ReduceSum <keepdims = 0> (e, last)
          f = Abs(z)  u = ReduceSum <keepdims = 0> (f, mid) }"""
    first, second = calls(fused(text))
    assert first != second


def test_floats_that_decide_a_shape_are_another_function() -> None:
    text = """agraph (float[1] x) => (float[40] y, float[20] u, float[20] w)
        <float first = {0}, float last = {40}, float half = {20}, float step = {1}>
        { r = Range(first, last, step)  y = Add(r, x)
          s = Range(first, half, step)  u = Add(s, x)
          t = Range(first, half, step)  w = Add(t, x) }"""
    long, short, again = calls(fused(text))
    assert long != short == again


def test_a_call_stands_for_the_source_nodes_and_keeps_their_guards() -> None:
    model = parse_model("agraph (float[N, 8] x) => (float[N, 8] y) { t = Tanh(x)  y = Exp(t) }")
    infer_model(model)
    guard = Guard(IntExpr.of("N"), "<=", IntExpr.of(7), "a test")
    add_guards(next(iter(model.graph)), [guard])
    fuse_graph(model, shipped_rules())
    verify(model)
    (call,) = model.graph
    assert source_nodes(call) == ["Tanh_0", "Exp_1"]
    assert read_guards(call) == (guard,)
    (function,) = model.functions.values()
    assert [read_guards(node) for node in function] == [(), ()]
    assert [source_nodes(node) for node in function] == [["Tanh_0"], ["Exp_1"]]


def test_outputs_keep_their_names_and_types() -> None:
    model = fused("agraph (float[N, 8] x) => (float[N, 8] y) { t = Tanh(x)  y = Exp(t) }")
    (output,) = model.graph.outputs
    assert output.name == "y" and output.dtype == ir.DataType.FLOAT
    assert str(output.shape) == "[N,8]"


def test_a_function_holds_no_weights_and_captures_nothing() -> None:
    model = fused(
        "agraph (float[N, 2] x) => (float[N, 2] y) <float[2] b = {1, 2}> { t = Add(x, b)  y = Exp(t) }"
    )
    (function,) = model.functions.values()
    assert not function.graph.initializers
    assert [v.name for v in function.inputs] == ["x0", "x1"]


@pytest.mark.parametrize("rounds", [2, 3])
def test_fusing_again_finds_nothing(rounds: int) -> None:
    model = fused(LAYERS % (0, 6, 0, 6))
    once = calls(model)
    for _ in range(rounds):
        assert not [d for d in fuse_graph(model, shipped_rules()).decisions if d.applied]
        verify(model)
    assert calls(model) == once


def test_constants_that_only_a_rewrite_read_go_with_it() -> None:
    model = fused(
        """agraph (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
        <float r = {1.4142135}, float one = {1}, float half = {0.5}>
        { d = Div(x, r)  e = Erf(d)  a = Add(e, one)  m = Mul(x, a)  y = Mul(m, half)  z = Sub(x, one) }"""
    )
    assert list(model.graph.initializers) == ["one"]
