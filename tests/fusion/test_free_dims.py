"""A free dim changes what a region may be, and never what it computes: every size from 1 to 67."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from cuvil_build.comparison import Tolerance, compare
from cuvil_build.cuir.dims import DimSpec
from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.verify import verify
from cuvil_build.fusion.fuse import FusionResult, fuse_graph
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.reference import Reference
from tests.codegen import module_plans as plans
from tests.codegen.built_graphs import SmallModule, planned
from tests.codegen.module_plans import Api
from tests.free_dims import declare_dims
from tests.fusion.rule_files import rule_from, shipped_rules
from tests.ops.run_graph import run_graph

LARGEST = 67

NET = """agraph (float[N, 12] x, float[N, 1] c, float[N, 1, 6, N] p, float[12, 12] w, float[12] b,
    float[12] g, float[12] h, float[2, 1, 3, 3] k)
    => (float[N, 12] y, float[N, 12] z, float[1, N, 12] a, float[N, 2, 6, N] d)
    <int64[4] heads = {1, -1, 3, 4}, int64[3] flat = {1, -1, 12}, float root = {2}, float r = {1.4142135},
     float one = {1}, float half = {0.5}, float two = {2}, float eps = {1e-5}, int64[1] last = {-1}>
{
    m = MatMul(x, w)  ma = Add(m, b)  ms = Mul(ma, c)  e0 = Div(ms, r)  e1 = Erf(e0)  e2 = Add(e1, one)
    e3 = Mul(ms, e2)  e4 = Mul(e3, half)  y = Add(e4, x)
    u = ReduceMean(y, last)  v = Sub(y, u)  v2 = Pow(v, two)  vm = ReduceMean(v2, last)  ve = Add(vm, eps)
    vr = Sqrt(ve)  n = Div(v, vr)  ng = Mul(n, g)  z = Add(ng, h)
    qr = Reshape(z, heads)  q = Transpose <perm = [0, 2, 1, 3]> (qr)
    kt = Transpose <perm = [0, 2, 3, 1]> (qr)  s = MatMul(q, kt)  sd = Div(s, root)  sp = Softmax(sd)
    o = MatMul(sp, q)  ot = Transpose <perm = [0, 2, 1, 3]> (o)  of = Reshape(ot, flat)  a = Add(of, x)
    dc = Conv <pads = [1, 1, 1, 1]> (p, k)  dr = Relu(dc)  d = Add(dr, dr)
}"""


def arrays(model: ir.Model, size: int) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(size)
    found = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        shape = [dim if isinstance(dim, int) else size for dim in value.shape]
        found[str(value.name)] = chance.standard_normal(shape).astype(np.float32)
    return found


def fused(text: str) -> tuple[ir.Model, FusionResult]:
    model = parse_model(text)
    declare_dims(model, lambda _: DimSpec(1, LARGEST))
    infer_model(model)
    before = model.clone()
    result = fuse_graph(model, shipped_rules())
    verify(model)
    return before, result


class FusedModule(SmallModule):
    """A fused graph, compiled."""

    def __init__(self, result: FusionResult, folder: Path) -> None:
        self.graph = lower_graph(result.model, result.inference, lambda _, rank: tuple(range(rank)))
        folder.mkdir(parents=True, exist_ok=True)
        self.plan = planned(self.graph, folder / "packed")
        flags = (*plans.STRICT, *plans.FREESTANDING, "-O1", "-mavx2", "-mfma")
        self.api = Api(plans.build(self.plan, folder, flags=flags))
        (folder / "packed").replace(folder / "weights.safetensors")
        self.context = self.api.opened()


def test_fused_and_compiled_is_what_the_graph_computes_at_every_size(tmp_path: Path) -> None:
    before, result = fused(NET)
    applied = {decision.rule for decision in result.decisions if decision.applied}
    assert {"epilogue", "gelu-erf"} <= applied and len(applied) >= 4
    module = FusedModule(result, tmp_path)
    old, new = Reference(before), Reference(result.model)
    for size in range(1, LARGEST + 1):
        feeds = arrays(before, size)
        want = old.run(feeds).outputs
        found = compare(new.run(feeds).outputs, want)
        assert found.passed, f"fused graph at {size}: {found.describe()}"
        found = compare(dict(zip(want, module.run(feeds))), want, Tolerance(2e-5))
        assert found.passed, f"module at {size}: {found.describe()}"


SMALL = {
    "rows that one side spreads": "(float[N, 4] x, float[1, 4] w) => (float[N, 4] y) "
    "{ a = Tanh(w)  b = Exp(a)  c = Add(b, x)  y = Relu(c) }",
    "a product of one row, spread over many": "(float[1, 5] x, float[5, 4] w, float[N, 4] r) "
    "=> (float[N, 4] y) { m = MatMul(x, w)  c = Add(m, r)  y = Relu(c) }",
    "a column": "(float[N, 1] x, float[N, 4] w) => (float[N, 4] y) "
    "{ a = Exp(x)  b = Mul(a, w)  y = Tanh(b) }",
    "rows that become columns": "(float[N, 4] x) => (float[4, N] y) "
    "{ a = Abs(x)  t = Transpose(a)  y = Exp(t) }",
    "a mean of rows": "(float[N, 4] x) => (float[N, 4] y) <int64[1] first = {0}> "
    "{ a = Abs(x)  m = ReduceMean(a, first)  y = Sub(a, m) }",
    "two free dims that must agree": "(float[N, 4] x, float[M, 4] w) => (float[N, 4] y) "
    "{ a = Abs(x)  b = Add(a, w)  y = Tanh(b) }",
}


@pytest.mark.parametrize("name", SMALL)
def test_small_nets_at_every_size(name: str) -> None:
    before, result = fused(f"agraph {SMALL[name]}")
    graph = lower_graph(result.model, result.inference, lambda _, rank: tuple(range(rank)))
    old, new = Reference(before), Reference(result.model)
    for size in range(1, LARGEST + 1):
        feeds = arrays(before, size)
        want = old.run(feeds).outputs
        found = compare(new.run(feeds).outputs, want)
        assert found.passed, f"{size}: {found.describe()}"
        if size in (1, 2, 3, 8, 17, LARGEST):
            found = compare(dict(zip(want, run_graph(graph, feeds))), want)
            assert found.passed, f"lowered at {size}: {found.describe()}"


def test_a_region_is_cut_where_a_free_dim_would_spread_what_it_computes() -> None:
    _, result = fused(f"agraph {SMALL['a product of one row, spread over many']}")
    assert [node.op_type.split("_")[0] for node in result.model.graph] == ["MatMul", "AddRelu"]
    reasons = {decision.refused_by for decision in result.decisions}
    assert "node 'Add_1' spreads 'm' over a larger shape" in reasons


def test_gains_are_those_of_usual_sizes() -> None:
    """What a free dim usually is decides which of two regions is worth more."""
    rule = rule_from("stage: fuse\npattern: Tanh -> Exp\naction: fuse\n")
    model = parse_model("agraph (float[N, 4] x) => (float[N, 4] y) { t = Tanh(x)  y = Exp(t) }")
    (decision,) = fuse_graph(model, [rule]).decisions
    assert decision.bytes_saved == 2 * 128 * 4 * 4
