"""The report: a node that is spoiled is the worst, with its cause and the lines that repair it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir

from cuvil_build.frontends.onnx import import_onnx
from cuvil_build.quantize.nodes import NodeLoss, node_losses
from cuvil_build.quantize.products import PASSING
from cuvil_build.quantize.scheme import Deviation, NodePolicy, Policy, Weights, assign
from tests.quantize.graphs import POLICIES, feeds_of, fixture, quantised


def losses_of(model: ir.Model, policy: Policy, seeds: int = 2) -> list[NodeLoss]:
    before = model.clone()
    cases = [feeds_of(before, seed=seed) for seed in range(seeds)]
    converted = quantised(model, policy, cases)
    named = {str(node.name): p for node, p in assign(before, policy, {}).nodes.items()}
    return node_losses(before, converted, cases, named)


def test_every_policy_has_a_report() -> None:
    for name, policy in sorted(POLICIES.items()):
        rows = losses_of(fixture("mlp"), Policy(policy))
        assert rows, name
        assert [row.alone.sqnr for row in rows] == sorted(row.alone.sqnr for row in rows)
        assert all(row.cause for row in rows) and any(row.pattern.startswith("name:") for row in rows)


def test_an_outlier_channel_is_named_and_keeping_its_node_repairs_it() -> None:
    model = fixture("mlp")
    node = next(n for n in model.graph if n.op_type == "MatMul")
    value = node.inputs[1]
    assert value is not None and value.const_value is not None
    array = value.const_value.numpy().copy()
    array[:, 0] *= 1000
    value.const_value = ir.Tensor(array, name=value.name)
    per_tensor = NodePolicy(Weights("int8", per="tensor"))
    rows = losses_of(model.clone(), Policy(per_tensor))
    worst = next(row for row in rows if row.node == node.name)
    assert "an outlier channel" in worst.cause
    kept = Deviation((worst.pattern,), Weights(), "float32")
    again = losses_of(model.clone(), Policy(per_tensor, (kept,)))
    assert worst.node not in {row.node for row in again}


def test_wide_ranges_are_named() -> None:
    model = fixture("mlp")
    cases = [feeds_of(model, size=600, seed=seed) for seed in range(2)]
    for case in cases:
        for array in case.values():
            array.reshape(-1, array.shape[-1])[0] = 500
    before = model.clone()
    policy = Policy(NodePolicy(Weights("int8"), "uint8"))
    converted = quantised(model, policy, cases)
    named = {str(node.name): p for node, p in assign(before, policy, {}).nodes.items()}
    rows = node_losses(before, converted, cases, named)
    assert any(row.cause.startswith("wide range") for row in rows)
    other = [{name: array * 4 for name, array in case.items()} for case in cases]
    rows = node_losses(before, converted, other, named)
    assert any("outside of the calibrated range, and only 2 samples" in row.cause for row in rows)


def test_an_outlier_channel_of_what_is_read_is_named() -> None:
    model = fixture("mlp")
    cases = [feeds_of(model, size=16, seed=seed) for seed in range(2)]
    for case in cases:
        case["x"][:, 7] *= 300
    for name in ("uint8", "dynamic"):
        policy = Policy(POLICIES[name])
        named = {str(node.name): p for node, p in assign(model, policy, {}).nodes.items()}
        rows = node_losses(model, quantised(model.clone(), policy, cases), cases, named)
        worst = min(rows, key=lambda row: row.operand["channel_outlier"] < 100)
        assert "channel 7 of what it reads reaches" in worst.cause and worst.op == "Gemm"


def test_a_normalization_that_stays_is_named_beside_the_cause(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes = {"w": (8, 4, 1, 1)} | dict.fromkeys("gbmv", (8,))
    weights = [
        onnx.numpy_helper.from_array(rng.random(shape, np.float32) + np.float32(0.5), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"]),
        onnx.helper.make_node("BatchNormalization", ["c", *"gbmv"], ["n"]),
        onnx.helper.make_node("Add", ["n", "c"], ["y"]),
    ]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, count, 8, 8])
        for name, count in (("x", 4), ("y", 8))
    )
    graph = onnx.helper.make_graph(nodes, "net", [x], [y], weights)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, tmp_path / "net.onnx")
    (row,) = losses_of(import_onnx(tmp_path / "net.onnx").model, Policy(POLICIES["uint8"]))
    assert row.cause == "rounding to 8 bits; the normalization behind it is not folded into its weights"


def test_values_that_are_narrow_throughout_have_rows() -> None:
    """Between nodes of float16 nothing is widened."""
    model = fixture("mlp")
    rows = losses_of(model.clone(), Policy(POLICIES["float16"]))
    assert {row.op for row in rows} >= {"Gemm", "Relu", "MatMul"}
    assert all(60 < row.total.sqnr < 90 for row in rows)


def test_what_only_moves_bytes_is_no_node_to_keep() -> None:
    model = fixture("residual")
    for row in losses_of(model, Policy(NodePolicy(Weights("int8"), "uint8"))):
        assert bool(row.pattern) == (row.op not in PASSING)


def test_alone_is_no_worse_than_what_all_together_lose_at_the_end() -> None:
    rows = losses_of(fixture("residual"), Policy(NodePolicy(Weights("int8"), "uint8")))
    assert np.isfinite([row.alone.sqnr for row in rows]).all()
    assert min(row.total.sqnr for row in rows) <= max(row.alone.sqnr for row in rows)
