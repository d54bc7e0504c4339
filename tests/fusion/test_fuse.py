"""The rule engine with all shipped rules."""

import collections
import itertools

import onnx_ir as ir
import pytest

from cuvil_build.comparison import compare
from cuvil_build.cuir.text import parse_model, print_graph
from cuvil_build.cuir.verify import verify
from cuvil_build.errors import InvalidValue, Loc
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.fusion.overrides import Override, Overrides
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.ops.lowered_graph import RegionItem
from cuvil_build.reference import run_reference
from cuvil_build.samples import random_samples
from tests.conftest import input_spec
from tests.fusion.rule_files import network, rule_from, shipped_rules

ENCODER = """agraph (float[2, S, 12] x, float[12, 12] wq, float[12, 12] wk, float[12, 12] wv,
    float[12, 12] wo, float[12] bq, float[12] bk, float[12] bv, float[12] bo,
    float[12, 24] w1, float[24] b1, float[24, 12] w2,
    float[12] b2, float[12] g, float[12] h) => (float[2, S, 12] y)
    <int64[4] heads = {0, 0, 3, 4}, int64[3] flat = {0, 0, 12}, float root = {2}, float r = {1.4142135},
     float one = {1}, float half = {0.5}, float two = {2}, float eps = {1e-5}, int64[1] last = {-1}>
{
    qm = MatMul(x, wq)  qa = Add(qm, bq)  qr = Reshape(qa, heads)  q = Transpose <perm = [0, 2, 1, 3]> (qr)
    km = MatMul(x, wk)  ka = Add(km, bk)  kr = Reshape(ka, heads)  k = Transpose <perm = [0, 2, 3, 1]> (kr)
    vm = MatMul(x, wv)  va = Add(vm, bv)  vr = Reshape(va, heads)  v = Transpose <perm = [0, 2, 1, 3]> (vr)
    s = MatMul(q, k)  sd = Div(s, root)  p = Softmax <axis = -1> (sd)
    c = MatMul(p, v)  ct = Transpose <perm = [0, 2, 1, 3]> (c)  cr = Reshape(ct, flat)
    om = MatMul(cr, wo)  oa = Add(om, bo)  o = Add(x, oa)
    m = ReduceMean(o, last)  d = Sub(o, m)  sq = Pow(d, two)  va2 = ReduceMean(sq, last)  e = Add(va2, eps)
    rt = Sqrt(e)  n = Div(d, rt)  ng = Mul(n, g)  l = Add(ng, h)
    fm = MatMul(l, w1)  fa = Add(fm, b1)  fd = Div(fa, r)  fe = Erf(fd)  fs = Add(fe, one)
    fx = Mul(fa, fs)  f = Mul(fx, half)
    um = MatMul(f, w2)  ua = Add(um, b2)  y = Add(ua, l)
}"""

SQUEEZE_EXCITE = """agraph (float[N, 4, H, W] x, float[4, 1, 3, 3] dw, float[4] db, float[2, 4, 1, 1] w1,
    float[2] b1, float[4, 2, 1, 1] w2, float[4] b2, float[6, 4, 1, 1] pw, float[6] pb)
    => (float[N, 6, H, W] y)
    <float three = {3}, float zero = {0}, float six = {6}>
{
    d = Conv <group = 4, pads = [1, 1, 1, 1]> (x, dw, db)  da = Add(d, three)  dc = Clip(da, zero, six)
    dm = Mul(d, dc)  a = Div(dm, six)
    g = GlobalAveragePool(a)  c = Conv(g, w1, b1)  r = Relu(c)  e = Conv(r, w2, b2)  s = HardSigmoid(e)
    m = Mul(a, s)  y = Conv(m, pw, pb)
}"""


def fused(text: str) -> FusionResult:
    model = network(text)
    result = fuse_graph(model, shipped_rules())
    verify(model)
    return result


def kernels(model: ir.Model) -> collections.Counter[str]:
    return collections.Counter(n.op_type.rsplit("_", 1)[0] for n in model.graph.all_nodes())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            ENCODER,
            {
                "MatMulAdd": 3,
                "Reshape": 4,
                "TransposeTransposeMatMulDivAnd4": 1,
                "MatMulAddAdd": 2,
                "LayerNormalization": 1,
                "MatMulAddGelu": 1,
            },
        ),
        (
            SQUEEZE_EXCITE,
            {
                "ConvHardSwish": 1,
                "GlobalAveragePool": 1,
                "ConvRelu": 1,
                "ConvHardSigmoid": 1,
                "Mul": 1,
                "Conv": 1,
            },
        ),
    ],
    ids=["encoder", "squeeze and excite"],
)
def test_networks_become_the_kernels_that_a_person_would_write(text: str, expected: dict[str, int]) -> None:
    before = network(text)
    result = fused(text)
    assert dict(kernels(result.model)) == expected
    inputs = [input_spec(value) for value in before.graph.inputs]
    for feeds in random_samples(inputs, {}, "net"):
        found = compare(run_reference(result.model, feeds).outputs, run_reference(before, feeds).outputs)
        assert found.passed, found.describe()
    lowered = lower_graph(result.model, result.inference, lambda _, rank: tuple(range(rank)))
    regions = [item for item in lowered.body.items if isinstance(item, RegionItem)]
    assert [len(item.region.nests) for item in regions] == [1] * len(regions)


def test_the_order_of_the_text_does_not_matter() -> None:
    head = "agraph (float[N, 4] x, float[4, 4] v, float[4, 4] w) => (float[N, 4] y, float[N, 4] z)"
    statements = [
        "a = MatMul(x, v)",
        "b = MatMul(x, w)",
        "c = Add(a, b)",
        "y = Tanh(c)",
        "d = Exp(x)",
        "z = Neg(d)",
    ]
    needs = {2: (0, 1), 3: (2,), 5: (4,)}
    seen = set()
    for order in itertools.permutations(range(len(statements))):
        if any(order.index(n) > order.index(at) for at, before in needs.items() for n in before):
            continue
        result = fused(f"{head} {{ {'  '.join(statements[i] for i in order)} }}")
        lines = [line.strip() for line in print_graph(result.model).split("\n")]
        seen.add((tuple(sorted(lines)), tuple((d.rule, d.function) for d in result.decisions)))
    assert len(seen) == 1


def test_decisions_say_what_was_saved_and_what_said_no() -> None:
    result = fused("agraph (float[8, 16] x, float[16, 4] w) => (float[8, 4] y, float[8, 4] z) "
                   "{ m = MatMul(x, w)  a = Tanh(m)  y = Exp(a)  z = Neg(y) }")  # fmt: skip
    applied = [d for d in result.decisions if d.applied]
    assert [(d.rule, d.nodes) for d in applied] == [("epilogue", ("MatMul_0", "Tanh_1", "Exp_2"))]
    assert applied[0].bytes_saved == 2 * 2 * 8 * 4 * 4
    assert applied[0].function.startswith("MatMulTanhExp_")
    assert "value 'y' is an output of its graph" in {d.refused_by for d in result.decisions}


def test_rules_that_made_a_node_are_part_of_its_regions_mask() -> None:
    result = fused(
        """agraph (float[N, 4] x, float[4, 4] w) => (float[N, 4] y)
        <float r = {1.4142135}, float one = {1}, float half = {0.5}>
        { m = MatMul(x, w)  d = Div(m, r)  e = Erf(d)  a = Add(e, one)  b = Mul(m, a)  y = Mul(b, half) }"""
    )
    names = sorted(rule.name for rule in shipped_rules())
    (region,) = [d for d in result.decisions if d.applied and d.rule == "epilogue"]
    assert region.fusion_src == 1 << names.index("epilogue") | 1 << names.index("gelu-erf")


def test_a_denied_rule_leaves_the_nodes_to_others() -> None:
    text = """agraph (float[N, 4] x, float[4, 4] w) => (float[N, 4] y)
        { m = MatMul(x, w)  a = Tanh(m)  y = Exp(a) }"""
    model = network(text)
    entry = Override("epilogue", "Tanh*", Loc("fusion.overrides.yaml", 3, 11))
    result = fuse_graph(model, shipped_rules(), Overrides((entry,)))
    assert dict(kernels(model)) == {"MatMul": 1, "TanhExp": 1}
    assert "denied at fusion.overrides.yaml:3:11" in {d.refused_by for d in result.decisions}
    assert result.used_overrides == (entry,)


def test_trust_may_be_a_formula() -> None:
    rule = rule_from("stage: fuse\npattern: Tanh -> Exp\naction: fuse\ntrust: dim(result, 1) / 8\n")
    model = parse_model("agraph (float[N, 4] x) => (float[N, 4] y) { t = Tanh(x)  y = Exp(t) }")
    (decision,) = fuse_graph(model, [rule]).decisions
    assert decision.trust.pattern == 0.5


def test_a_graph_pattern_may_be_fused() -> None:
    rule = rule_from("stage: fuse\npattern: '(x) => (y) { s = Sigmoid(x)  y = Mul(x, s) }'\naction: fuse\n")
    model = parse_model(
        "agraph (float[N, 4] x) => (float[N, 4] y) { t = Exp(x)  s = Sigmoid(t)  y = Mul(s, t) }"
    )
    fuse_graph(model, [rule])
    assert dict(kernels(model)) == {"Exp": 1, "SigmoidMul": 1}


def test_a_replacement_may_hold_numbers() -> None:
    rule = rule_from(
        "stage: fold\npattern: '(x) => (y) { t = Abs(x)  y = Neg(t) }'\n"
        "action: {replace_with: '(x) => (y) { t = Abs(x)  y = Mul(t, -1) }'}\n"
    )
    model = parse_model("agraph (float[N, 4] x) => (float[N, 4] y) { t = Abs(x)  y = Neg(t) }")
    before = model.clone()
    fuse_graph(model, [rule])
    verify(model)
    feeds = random_samples([input_spec(v) for v in before.graph.inputs], {}, "numbers")[1]
    assert compare(run_reference(model, feeds).outputs, run_reference(before, feeds).outputs).passed


def test_rewrites_that_undo_each_other_are_told() -> None:
    swap = """
        stage: fold
        pattern: '(x) => (y) {{ y = {0}(x) }}'
        action: {{replace_with: '(x) => (y) {{ y = {1}(x) }}'}}
        """
    there = rule_from(swap.format("Exp", "Tanh"), "there")
    back = rule_from(swap.format("Tanh", "Exp"), "back")
    model = parse_model("agraph (float[N, 4] x) => (float[N, 4] y) { y = Exp(x) }")
    with pytest.raises(InvalidValue, match="rules 'back' and 'there' undo each other at value 'y'"):
        fuse_graph(model, [there, back])
