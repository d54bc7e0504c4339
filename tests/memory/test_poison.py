"""Graphs in one arena with poison around everything alive: right results, planted faults that are seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from cuvil_build import paths
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import load_rules
from cuvil_build.memory import liveness
from cuvil_build.memory.plan import GraphPlan, plan_graph
from cuvil_build.passes.assign_layouts import assign_layouts
from cuvil_build.reference import run_reference
from tests.codegen.built_graphs import lowered
from tests.conformance.similar import difference
from tests.differential.generate import generate
from tests.differential.run import case_of
from tests.memory.poison import run_plan, run_poisoned

GRAPHS = {
    "chain in place": """agraph (float[4, 8] x) => (float[4, 8] y)
        { a = Sigmoid(x)  b = Neg(a)  c = Exp(b)  y = Add(c, x) }""",
    "residual": """agraph (float[4, 8] x, float[8, 8] w) => (float[4, 8] y)
        { a = MatMul(x, w)  b = Relu(a)  c = MatMul(b, w)  d = Add(c, a)  y = Neg(d) }""",
    "views": """agraph (float[4, 8] x) => (float[2, 16] y, float[4, 8] z)
        <int64[2] s = {2, 16}>
        { a = Neg(x)  b = Reshape(a, s)  c = Exp(x)  y = Sigmoid(b)  d = Add(a, c)  z = Abs(d) }""",
    "free dims": """agraph (float[n, 8] x) => (float[n, 8] y, float[8, n] z)
        { a = Neg(x)  b = Transpose<perm = [1, 0]>(a)  c = Exp(b)  z = Neg(c)  d = Abs(a)  y = Add(d, x) }""",
    "an output that is read": """agraph (float[4, 8] x) => (float[4, 8] a, float[4, 8] y)
        { a = Neg(x)  b = Exp(a)  y = Add(b, a) }""",
    "an output that nobody reads": """agraph (float[2, 6] x) => (float[2, 3] y)
        { a, unused = Split<axis = 1, num_outputs = 2>(x)  b = Neg(a)  y = Exp(b) }""",
    "values of few bits": """agraph (float[3, 5] x) => (float[3, 5] y)
        <float scale = {0.5}, uint4 zero = {7}>
        { q = QuantizeLinear(x, scale, zero)  p = Identity(q)  a = Exp(x)
          d = DequantizeLinear(q, scale, zero)  y = Add(d, a) }""",
    "branches": """agraph (bool c, float[4, 8] x) => (float[4, 8] y)
        { a = Neg(x)
          b = If (c) <
            then_branch = t () => (float[4, 8] u) { s = Exp(a)  v = Neg(s)  u = Add(v, x) },
            else_branch = e () => (float[4, 8] w) { r = Abs(a)  w = Mul(r, a) }
          >
          d = Exp(b)  y = Add(d, a) }""",
    "a loop": """agraph (float[4, 8] x) => (float[4, 8] y, float[3, 4, 8] z)
        <int64 trips = {3}, bool yes = {1}>
        { a = Neg(x)
          y, z = Loop (trips, yes, a) <
            body = l (int64 i, bool go, float[4, 8] s) => (bool more, float[4, 8] t, float[4, 8] e)
            { more = Identity(go)  u = Exp(s)  v = Neg(u)  w = Sub(v, x)  t = Add(w, u)  e = Sigmoid(w) }
          > }""",
}


def feeds_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value or 5 for d in tensor.shape.dim]
        is_bool = tensor.elem_type == onnx.TensorProto.BOOL
        found[value.name] = (
            np.asarray(seed % 2 == 1) if is_bool else rng.normal(size=shape).astype(np.float32)
        )
    return found


def assert_right(plan: GraphPlan, model: onnx.ModelProto, seed: int) -> None:
    feeds = feeds_of(model, seed)
    expected = list(run_reference(model, feeds).outputs.values())
    found = run_plan(plan, feeds, seed)
    assert difference(found, expected, 1e-4, 1e-5) == ""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", GRAPHS)
def test_results_are_right_in_a_poisoned_arena(name: str, seed: int) -> None:
    model, graph = lowered(GRAPHS[name])
    assert_right(plan_graph(graph), model, seed)


def test_a_chain_and_a_residual_are_in_place() -> None:
    for name, count in (("chain in place", 2), ("residual", 1)):
        assert len(plan_graph(lowered(GRAPHS[name])[1]).storage.in_place) == count


def is_wrong(plan: GraphPlan, model: onnx.ModelProto) -> bool:
    wrong = 0
    for seed in range(4):
        try:
            assert_right(plan, model, seed)
        except AssertionError:
            wrong += 1
    return wrong == 4


@pytest.mark.parametrize("name", ["residual", "views", "free dims", "branches", "a loop"])
def test_blocks_that_overlap_are_seen(name: str) -> None:
    model, graph = lowered(GRAPHS[name])
    plan = plan_graph(graph)
    assert len(plan.storage.blocks) > 1
    same = dict.fromkeys(plan.memory.offsets, IntExpr.of(0))
    assert is_wrong(replace(plan, memory=replace(plan.memory, offsets=same)), model)


@pytest.mark.parametrize("name", ["residual", "views", "branches", "a loop"])
def test_a_life_that_ends_too_early_is_seen(name: str) -> None:
    model, graph = lowered(GRAPHS[name])
    plan = plan_graph(graph)
    tensors = [b for b in plan.storage.blocks if b.nbytes != IntExpr.of(1)]  # poison is a true condition
    longest = max(tensors, key=lambda b: b.last - b.first)
    blocks = tuple(replace(b, last=b.last - 1) if b is longest else b for b in plan.storage.blocks)
    assert is_wrong(replace(plan, storage=replace(plan.storage, blocks=blocks)), model)


def test_a_result_that_must_not_be_in_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row turned around: a piece reads what another one has written."""
    text = """agraph (float[4, 32] x) => (float[4, 32] y)
        <int64[1] s = {-1}, int64[1] e = {-99}, int64[1] one = {1}, int64[1] back = {-1}>
        { a = Neg(x)  b = Slice(a, s, e, one, back)  c = Exp(b)  y = Neg(c) }"""
    model, graph = lowered(text)
    assert_right(plan_graph(graph), model, 0)
    monkeypatch.setattr(liveness, "may_overwrite", lambda region, operands, result: True)
    plan = plan_graph(graph)
    assert plan.storage.in_place and is_wrong(plan, model)


@pytest.mark.parametrize("seed", range(6))
def test_fused_random_graphs_are_right_in_a_poisoned_arena(seed: int, tmp_path: Path) -> None:
    case = generate(seed)
    onnx.save(case.model, tmp_path / "model.onnx")
    model = import_onnx(tmp_path / "model.onnx").model
    rules = load_rules(sorted(paths.find_yaml("rules").values()))
    assign_layouts(model, fuse_graph(model, rules).inference)
    found = run_poisoned(model, case.feeds, seed)
    bar = case_of(case)
    assert difference(found, case.expected, bar.rtol, bar.atol) == ""
