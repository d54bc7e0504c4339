"""Expansion in place: names, subgraphs, bodies of ONNX's schema, and what can't be expanded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from cuvil_build.cuir.locations import set_location, source_nodes
from cuvil_build.cuir.text import parse_model
from cuvil_build.cuir.traverse import all_nodes
from cuvil_build.errors import CuvilError, UnsupportedAttribute
from cuvil_build.frontends.onnx import examine_onnx
from cuvil_build.passes import expand_operators
from cuvil_build.passes.pipeline import run_passes
from cuvil_build.reference import run_reference

HEADER = '<ir_version: 13, opset_import: ["" : 26, "com.microsoft" : 1]>'
X = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)


def expanded(text: str) -> ir.Model:
    return run_passes(parse_model(f"{HEADER}\n{text}"), ["expand-operators", "eliminate-dead"]).model


def test_values_keep_the_names_of_the_source_and_nodes_say_where_they_came_from() -> None:
    model = expanded("""agraph (float[2,3,8] x, float[8] g) => (y)
        { n = com.microsoft.SkipLayerNormalization(x, x, g)  y = Relu(n) }""")
    assert [n.op_type for n in model.graph] == ["Add", "LayerNormalization", "Relu"]
    names = [v.name for n in model.graph for v in n.outputs if v.uses() or v.is_graph_output()]
    assert names == ["SkipLayerNormalization_0/Add", "n", "y"]
    made = list(model.graph)[:2]
    assert [source_nodes(n) for n in made] == [["SkipLayerNormalization_0"]] * 2
    assert len({n.name for n in all_nodes(model)}) == 3


def test_an_output_that_is_an_operand_is_copied() -> None:
    """An output of a graph has to be made in it."""
    text = "agraph (float[2,3] x) => (y) { y, m = com.microsoft.SimplifiedLayerNormalization(x, s) }"
    model = expanded(text.replace("(y) {", "(y) <float[3] s = {1, 1, 1}> {"))
    assert [v.name for v in model.graph.outputs] == ["y"]


def test_operators_of_both_branches_of_an_if_are_expanded() -> None:
    text = """agraph (float[2,3,8] x, bool c) => (y) {
        y = If(c) <then_branch = a () => (t) { t = com.microsoft.QuickGelu(x) },
                   else_branch = b () => (e) { e = com.microsoft.FastGelu(x) }> }"""
    model = expanded(text)
    assert not any(n.domain == "com.microsoft" for n in all_nodes(model))
    for condition in (True, False):
        feeds = {"x": X, "c": np.array(condition)}
        want = run_reference(parse_model(f"{HEADER}\n{text}"), feeds).outputs["y"]
        np.testing.assert_allclose(run_reference(model, feeds).outputs["y"], want, rtol=1e-5, atol=1e-6)


def test_what_follows_branches_of_different_rank_is_expanded() -> None:
    text = """agraph (float[2,3,8] x) => (y) <int64[1] first = {0}, int64 one = {1}, int64 zero = {0}> {
        s = Shape(x)  n = Gather(s, zero)  c = Equal(n, one)
        v = If(c) <then_branch = a () => (t) { t = Squeeze(x, first) },
                   else_branch = b () => (e) { e = Neg(x) }>
        y = com.microsoft.QuickGelu(v) }"""
    model = expanded(text)
    assert not any(n.domain == "com.microsoft" for n in all_nodes(model))
    assert not any(n.op_type == "If" for n in all_nodes(model)), "only a taken branch gives a type"


def test_bodies_of_the_schema_are_bound_to_the_call() -> None:
    text = "agraph (float[2,3,8] x) => (y) { y = MeanVarianceNormalization<axes = [0, 2]>(x) }"
    expand_operators.run(model := parse_model(text))
    want = (X - X.mean((0, 2), keepdims=True)) / X.std((0, 2), keepdims=True)
    np.testing.assert_allclose(run_reference(model, {"x": X}).outputs["y"], want, rtol=1e-4, atol=1e-5)


def test_an_unknown_attribute_is_named_with_its_node() -> None:
    with pytest.raises(UnsupportedAttribute, match="alfa") as caught:
        expanded("agraph (float[3] x) => (y) { y = com.microsoft.QuickGelu<alfa = 1.0>(x) }")
    assert caught.value.loc.node.startswith("node 'QuickGelu_0'")


def test_a_definition_that_leads_back_to_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuvil_build.ops import catalog
    from cuvil_build.ops.expansion import Expansion
    from cuvil_build.ops.operator import Operator

    def again(build: Expansion, x: ir.Value) -> ir.Value:
        return build.op("Again", x, domain="com.microsoft")

    operator = Operator("Again", expand=again, domain="com.microsoft")
    found = catalog.find
    monkeypatch.setattr(catalog, "find", lambda d, o: operator if o == "Again" else found(d, o))
    with pytest.raises(CuvilError, match="leads back to itself"):
        expanded("agraph (float[3] x) => (y) { y = com.microsoft.Again(x) }")


def test_check_tells_all_problems_around_an_expansion(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuickGelu", ["x"], ["a"], domain="com.microsoft"),
        helper.make_node("MatMul", ["a", "w"], ["b"], name="mismatch"),
        helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft", alfa=1.0, name="odd"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [onnx.ValueInfoProto(name=n) for n in ("b", "y")],
        [numpy_helper.from_array(np.zeros((4, 2), np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    imported, errors = examine_onnx(tmp_path / "m.onnx")
    assert imported is None
    assert [e.loc.node.split("'")[1] for e in errors] == ["mismatch", "odd"]


def test_a_hundred_expansions_among_two_thousand_nodes_are_made_in_one_walk(tmp_path: Path) -> None:
    """A walk of the whole model for each of them would take minutes."""
    nodes, last = [], "x"
    for n in range(100):
        operands = [last, "x", "g"]
        last = f"s{n}"
        nodes.append(helper.make_node("SkipLayerNormalization", operands, [last], domain="com.microsoft"))
        for k in range(19):
            nodes.append(helper.make_node("Tanh", [last], [f"t{n}_{k}"]))
            last = f"t{n}_{k}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8])],
        [onnx.ValueInfoProto(name=last)],
        [numpy_helper.from_array(np.ones(8, np.float32), "g")],
    )
    opsets = [helper.make_opsetid("", 26), helper.make_opsetid("com.microsoft", 1)]
    model: ir.Model = ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    for number, node in enumerate(model.graph):
        node.name = f"n{number}"
        set_location(node, "m", node.name, node.op_type, 26)
    model.graph.inputs[0].shape = ir.Shape([ir.SymbolicDim("n"), 3, 8])
    walks = 0
    original = expand_operators.infer_model

    def counted(*args: object, **keywords: object) -> object:
        nonlocal walks
        walks += 1
        return original(*args, **keywords)  # type: ignore[arg-type]

    expand_operators.infer_model = counted  # type: ignore[assignment]
    try:
        result = expand_operators.run(model)
    finally:
        expand_operators.infer_model = original
    assert walks == 1
    assert len(result.rewrites) == 100
    assert len(model.graph) == 2100


def test_a_branch_that_is_only_tried_leaves_no_trace() -> None:
    """The first branch has the wrong rank: under it the expansion would transpose other axes."""
    model = expanded("""agraph (float[N,4,6] x) => (float[A,B] y)
        <int64[1] first = {0}, int64 one = {1}, int64 zero = {0}, float[4,2] e = {1,2,3,4,5,6,7,8},
         float[2,3] u = {1,2,3,4,5,6}> {
        s = Shape(x)  n = Gather(s, zero)  same = Equal(n, one)  c = Not(same)
        v = If(c) <then_branch = a () => (f) { f = Neg(x) },
                   else_branch = b () => (t) { t = Squeeze(x, first) }>
        p = com.microsoft.FusedMatMul<transA = 1>(v, e)
        y = Gemm(p, u) }""")
    (turned,) = [n for n in all_nodes(model) if n.op_type == "Transpose"]
    assert list(turned.attributes["perm"].value) == [1, 0]
